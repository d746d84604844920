"""The sample browser: prompts with their responses, coloured by token probability or by reward."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.panels.live import Output
from rlkit.results.read import run_folders
from rlkit.results.store import read_jsonl

if TYPE_CHECKING:
    import pandas as pd

ANY = "any"
OUTCOMES = (ANY, "correct", "wrong", "not graded")
_PAGE = 5  # prompts a page
_LONG = 4000  # characters of a text that are shown
_FAINT = 6.0  # nats of surprise at which a token has its full colour
_RIGHT, _WRONG, _SURPRISE = "1,115,178", "222,143,5", "213,94,0"  # apart for the colour-blind
_BOX = "text-align:left;white-space:pre-wrap;overflow-wrap:anywhere"


def sample_browser(path: str | Path) -> "Browser":
    """A browser of samples for a notebook.

    Args:
        path: a run's folder, outputs/<study> or outputs.

    Raises:
        UserError: there are no runs, or none has logged a sample.
    """
    return Browser(Samples(path))


@dataclass(frozen=True)
class Choice:
    """What is shown: each field is a value of the table's column, or ANY."""

    run: str = ANY
    kind: str = ANY
    step: str = ANY
    domain: str = ANY
    outcome: str = ANY
    finish: str = ANY


class Samples:
    """The training samples and evaluated samples of some runs.

    Attributes:
        path: a run's folder, outputs/<study> or outputs.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @cached_property
    def table(self) -> "pd.DataFrame":
        """A row a sample: run, kind (training or evaluation), step, task_id, data_source, prompt, response,
        value, correct (null where not graded), error, finish_reason; for training samples also ground_truth,
        pieces and logprobs."""
        import pandas as pd

        parts = [pd.DataFrame(_training(folder)) for folder in run_folders(self.path)]
        parts += [_evaluations(folder) for folder in run_folders(self.path)]
        parts = [part for part in parts if len(part)]
        if not parts:
            raise UserError(f"No run under {self.path} has logged a sample yet.")
        found = pd.concat([part.astype(object) for part in parts], ignore_index=True)
        prompts = found.dropna(subset="prompt").drop_duplicates("task_id").set_index("task_id")["prompt"]
        found["prompt"] = found["prompt"].where(found["prompt"].notna(), found["task_id"].map(prompts))
        return found

    def values(self, column: str) -> list[str]:
        """ANY and the values of a column, as texts."""
        return [ANY, *map(str, sorted(self.table[column].dropna().unique()))]

    def select(self, choice: Choice) -> "pd.DataFrame":
        """The rows of a choice, later steps first, samples of a problem together."""
        rows = self.table
        wanted = {
            "run": choice.run, "kind": choice.kind, "step": choice.step, "data_source": choice.domain,
            "finish_reason": choice.finish,
        }  # fmt: skip
        for column, value in wanted.items():
            if value != ANY:
                rows = rows[rows[column].astype(str) == value]
        if choice.outcome == "not graded":
            rows = rows[rows["correct"].isna()]
        elif choice.outcome != ANY:
            rows = rows[rows["correct"].eq(choice.outcome == "correct").fillna(False).astype(bool)]
        return rows.sort_values(["step", "run", "task_id"], ascending=[False, True, True], kind="stable")


def page(rows: "pd.DataFrame", number: int = 0, colour: str = "probability") -> str:
    """Some prompts with their responses as HTML; every text of a model is escaped.

    Args:
        number: of the page, from 0.
        colour: "probability" (of each token; the less likely the darker) or "reward".
    """
    groups = list(rows.groupby(["step", "run", "task_id"], sort=False))
    shown = groups[number * _PAGE : (number + 1) * _PAGE]
    if not shown:
        return "<i>No sample is like this.</i>"
    ends = rows["value"].dropna().astype(float)
    scale = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
    parts = [f"<p>{len(rows)} samples of {len(groups)} prompts. {_legend(colour)}</p>"]
    several = rows["run"].nunique() > 1
    for _, part in shown:
        first = part.iloc[0]
        where = f"step {first['step']}, {first['kind']}, {first['data_source']}"
        where = f"{first['run']}, {where}" if several else where
        truth = first.get("ground_truth")
        answer = "" if _missing(truth) else f" · expected <code>{_escaped(truth)}</code>"
        parts.append(f"<div style='margin-top:1em;color:#555'>{_escaped(where)}{answer}</div>")
        parts.append(
            f"<div style='{_BOX};border-left:3px solid #999;padding-left:.6em'>{_prompt(first)}</div>"
        )
        parts += [_response(row, colour, scale) for row in part.to_dict("records")]
    return "".join(parts)


def _legend(colour: str) -> str:
    """What the colours of a page mean."""
    if colour == "reward":
        marks = ("high reward", f"{_RIGHT},.4"), ("low reward", f"{_WRONG},.4")
    else:
        marks = ("likely token", f"{_SURPRISE},.05"), ("unlikely token", f"{_SURPRISE},.8")
    return " ".join(f"<span style='background:rgba({tone})'>{text}</span>" for text, tone in marks)


def words(rows: "pd.DataFrame") -> str:
    """The first samples as plain text."""
    lines = [
        f"{row['prompt']!r} → {row['response']!r} ({_verdict(row)})"
        for row in rows.head(_PAGE).to_dict("records")
    ]
    return "\n".join(lines) or "No sample is like this."


def _response(row: dict[Any, Any], colour: str, scale: tuple[float, float]) -> str:
    verdict, finish = _verdict(row), row.get("finish_reason")
    mark = {"correct": "✓", "wrong": "✗"}.get(verdict.split(",")[0], "?")
    pieces, logprobs = row.get("pieces"), row.get("logprobs")
    shade = ""
    if colour == "probability" and isinstance(pieces, Sequence) and isinstance(logprobs, Sequence):
        text = "".join(_token(p, lp) for p, lp in zip(pieces[:_LONG], logprobs, strict=False))
    else:
        text = _escaped(row["response"])
        if colour == "reward" and not _missing(row.get("value")):
            share = (float(row["value"]) - scale[0]) / ((scale[1] - scale[0]) or 1.0)
            tone = _RIGHT if share >= 0.5 else _WRONG
            shade = f"background:rgba({tone},{0.15 + 0.5 * abs(share - 0.5):.2f})"
    tone = {"✓": f"rgb({_RIGHT})", "✗": f"rgb({_WRONG})"}.get(mark, "#555")
    why = f"{_escaped(verdict)}, {_escaped(finish)}"
    note = f" <b style='color:{tone}'>{mark}</b> <span style='color:#555'>{why}</span>"
    return (
        f"<div style='{_BOX};margin:.2em 0 .2em 1.2em'><span style='{shade}'>{text or '∅'}</span>{note}</div>"
    )


def _token(piece: str, logprob: float | None) -> str:
    """One token: the less likely, the darker; what an environment said is grey."""
    if logprob is None:
        return f"<span style='color:#888'>{_escaped(piece)}</span>"
    import math

    alpha = min(1.0, -logprob / _FAINT) * 0.8
    return (
        f"<span title='p = {math.exp(logprob):.3g}' style='background:rgba({_SURPRISE},{alpha:.2f})'>"
        f"{_escaped(piece) or '∎'}</span>"  # a stop token decodes to nothing
    )


def _verdict(row: dict[Any, Any]) -> str:
    if _missing(row.get("correct")):
        return f"not graded: {row.get('error')}"
    outcome = "correct" if row["correct"] else "wrong"
    return f"{outcome}, reward {float(row['value']):.3g}" if not _missing(row.get("value")) else outcome


def _prompt(row: Any) -> str:
    return "<i>the prompt is not in the logs</i>" if _missing(row["prompt"]) else _escaped(row["prompt"])


def _escaped(value: Any) -> str:
    text = str(value)
    return html.escape(text if len(text) <= _LONG else text[:_LONG] + " …")


def _missing(value: Any) -> bool:
    import pandas as pd

    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _training(folder: Path) -> list[dict[str, Any]]:
    rows = read_jsonl(folder / "samples.jsonl")
    return [{"run": folder.name, "kind": "training", **row} for row in rows]


def _evaluations(folder: Path) -> "pd.DataFrame":
    """Evaluated samples; their prompts are made again from the configuration, which decides them."""
    import pandas as pd

    path = folder / "evals.parquet"
    if not path.exists():
        return pd.DataFrame()
    from rlkit.config import load
    from rlkit.data import held_out

    found = pd.read_parquet(path)
    try:
        tasks = {task.id: task for task in held_out(load(folder / "config.yaml"))}
    except UserError:  # a data file that has moved
        tasks = {}
    prompts = {name: task.prompt[-1]["content"] for name, task in tasks.items()}
    truths = {name: task.ground_truth for name, task in tasks.items()}
    ids = found["task_id"]
    return found.assign(
        run=folder.name, kind="evaluation", prompt=ids.map(prompts), ground_truth=ids.map(truths)
    )


class Browser:
    """Filters above a page of samples. Shown by a notebook as the value of a cell.

    Attributes:
        samples: what is browsed.
        filters: the widget of each field of `Choice`.
    """

    def __init__(self, samples: Samples) -> None:
        import ipywidgets as w

        self.samples, self._page = samples, Output()
        options = {
            "run": samples.values("run"), "kind": samples.values("kind"), "step": samples.values("step"),
            "domain": samples.values("data_source"), "outcome": list(OUTCOMES),
            "finish": samples.values("finish_reason"),
        }  # fmt: skip
        self.filters: dict[str, Any] = {
            name: w.Dropdown(options=values, description=name, layout=w.Layout(width="20em"))
            for name, values in options.items()
        }
        if "training" in options["kind"]:  # these have their tokens
            self.filters["kind"].value = "training"
        self.colour: Any = w.Dropdown(
            options=["probability", "reward"], description="colour", layout=w.Layout(width="20em")
        )
        self.number: Any = w.BoundedIntText(value=1, min=1, max=1, layout=w.Layout(width="4em"))
        self.of = w.Label()
        step = {"layout": w.Layout(width="3em")}
        self.previous = w.Button(description="‹", tooltip="previous page", **step)
        self.next = w.Button(description="›", tooltip="next page", **step)
        self.previous.on_click(lambda _: self._turn(-1))
        self.next.on_click(lambda _: self._turn(1))
        for widget in self.filters.values():
            widget.observe(self._filtered, "value")
        for widget in (self.colour, self.number):
            widget.observe(lambda _: self.show(), "value")
        grid = w.GridBox(
            [*self.filters.values(), self.colour], layout=w.Layout(grid_template_columns="repeat(3, 21em)")
        )
        turning = [w.Label("page"), self.previous, self.number, self.of, self.next]
        self.box = w.VBox([grid, w.HBox(turning)])

    @property
    def choice(self) -> Choice:
        """What the filters say."""
        return Choice(**{name: widget.value for name, widget in self.filters.items()})

    def _filtered(self, _: Any) -> None:
        self.number.value = 1
        self.show()

    def _turn(self, by: int) -> None:
        self.number.value = min(max(1, self.number.value + by), self.number.max)

    def show(self) -> None:
        """Show the page of the filters."""
        rows = self.samples.select(self.choice)
        self.number.max = max(1, -(-rows[["run", "step", "task_id"]].drop_duplicates().shape[0] // _PAGE))
        self.of.value = f"of {self.number.max}"
        self.previous.disabled = self.number.value == 1
        self.next.disabled = self.number.value == self.number.max
        self._page.html(page(rows, self.number.value - 1, self.colour.value), words(rows))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)
        self._page.show()
        self.show()

    def __repr__(self) -> str:
        return f"<samples of {self.samples.path}: {len(self.samples.table)}>"
