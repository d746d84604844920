"""Runs beside each other: which there are, their curves, and a table with intervals."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.panels.ablation import Ablation, config_of
from rlkit.results.labels import in_words
from rlkit.results.progress import RunState, run_state
from rlkit.results.read import run_folders
from rlkit.results.store import read_json

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.figures import Drawing

METRICS = (
    "critic/score/mean",
    "actor/entropy",
    "actor/grad_norm",
    "response_length/mean",
    "actor/pg_clipfrac",
    "actor/kl_loss",
)
_GROUPS = 8  # groups of runs in a picture: as many as there are colours
_SMOOTH = 5  # steps that a training curve is averaged over


@dataclass(frozen=True)
class Entry:
    """A run beside others: those with one label differ in their seeds only."""

    folder: Path
    label: str
    changed: dict[str, tuple[Any, Any]]
    seed: int
    state: RunState


def entries(ablation: Ablation) -> list[Entry]:
    """The runs of the base's study and of the panel's, those nearest to the base first."""
    found = []
    for study in dict.fromkeys((ablation.base.study, ablation.study)):
        try:
            folders = run_folders(ablation.root / study)
        except UserError:
            continue
        for folder in folders:
            try:
                config = config_of(folder, (folder / "config.yaml").stat().st_mtime_ns)
            except UserError:
                continue  # written by another version
            changed = ablation.differences(config)
            found.append(Entry(folder, in_words(changed), changed, config.seed, run_state(folder)))
    return sorted(found, key=lambda e: (len(e.changed), e.label, e.seed))


def drawn(runs: Sequence[Entry], current: str, metric: str) -> tuple[bytes, str, str]:
    """The picture of `overlay` as PNG, and the table as HTML and as plain text."""
    frame = table(runs, current)
    png = overlay(runs, current, metric).png(120)
    return png, table_html(frame, current), frame.to_string(index=False)


def chosen(runs: Sequence[Entry], current: str) -> list[Entry]:
    """The runs that a picture shows: the current configuration's, the base's, and the nearest others."""
    labels = list(dict.fromkeys(entry.label for entry in runs))
    first = [name for name in (current, "base") if name in labels]
    active = [entry.label for entry in runs if entry.state.active]
    shown = list(dict.fromkeys((*first, *active, *labels)))[:_GROUPS]
    return [entry for entry in runs if entry.label in shown]


def overlay(runs: Sequence[Entry], current: str, metric: str = METRICS[0]) -> "Drawing":
    """Two panels: a training metric (a mean over five steps), and held-out pass@1 with its 95 % intervals.

    A line a group of runs, the mean over their seeds; the current configuration's is thick.

    Raises:
        UserError: no run has logged anything.
    """
    import pandas as pd

    from rlkit import figures

    shown = chosen(runs, current)
    curves = [_rows(entry, metric) for entry in shown]
    if not any(map(len, curves)):
        raise UserError("No run has logged anything yet.")
    table = pd.concat(curves, ignore_index=True)
    labels = list(dict.fromkeys(entry.label for entry in shown))
    with figures.styled():
        fig, axes = figures.new_axes("tmlr", 2, 0.36)
        for place, name in enumerate(labels):
            style = figures.look(place)
            width = 2.2 if name == current else 1.0
            for ax, kind in zip(axes, (metric, "eval/pass@1"), strict=True):
                part = table[(table["label"] == name) & (table["metric"] == kind)]
                if part.empty:
                    continue
                mean = part.groupby("step")[["value", "low", "high"]].mean()
                line: Any = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": width}
                if kind == metric:
                    mean["value"] = mean["value"].rolling(_SMOOTH, min_periods=1).mean()
                else:
                    line["marker"] = style["marker"]
                    ax.fill_between(
                        mean.index, mean["low"], mean["high"], color=style["color"], alpha=0.15, lw=0
                    )
                ax.plot(mean.index, mean["value"], **line, label=name)
        figures.label_axes(axes[0], "step", metric)
        figures.label_axes(axes[1], "step", "eval/pass@1")
        figures.legend(axes[0])
    return figures.Drawing(fig, table, {"runs": [{"run": entry.folder.name} for entry in shown]})


def table(runs: Sequence[Entry], current: str) -> "pd.DataFrame":
    """A row a group of runs: seeds, state, step, pass@1 first and last with its interval, and the difference of
    the last from the base's with its interval, problems resampled in pairs."""
    import pandas as pd

    shown = chosen(runs, current)
    base = [entry for entry in shown if entry.label == "base"]
    rows = []
    for name in dict.fromkeys(entry.label for entry in shown):
        group = [entry for entry in shown if entry.label == name]
        steps = [entry.state.step for entry in group if entry.state.step is not None]
        rows.append({
            "configuration": name,
            "seeds": ", ".join(str(entry.seed) for entry in group),
            "state": ", ".join(dict.fromkeys(entry.state.status for entry in group)),
            "step": max(steps) if steps else None,
            "pass@1 first": _estimate(_by_task(group, "min")),
            "pass@1 last": _estimate(_by_task(group)),
            "against base": "" if name == "base" or not base else _difference(group, base),
        })  # fmt: skip
    return pd.DataFrame(rows)


def table_html(frame: "pd.DataFrame", current: str) -> str:
    """The table with the current configuration in bold; texts escaped."""
    head = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in frame.columns)
    body = []
    for row in frame.astype(object).where(frame.notna(), "").to_dict("records"):
        bold = ";font-weight:bold" if row["configuration"] == current else ""
        cells = [f"<td style='text-align:left{bold}'>{html.escape(str(v))}</td>" for v in row.values()]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _rows(entry: Entry, metric: str) -> "pd.DataFrame":
    """label, metric, step, value, low, high of one run; intervals are those of its evaluations."""
    import pandas as pd

    log = entry.folder / "metrics.jsonl"
    training = _metric(entry.folder, metric, log.stat().st_mtime_ns if log.exists() else 0)
    evaluations = read_json(entry.folder / "run.json").get("evaluations", {})
    rows = [{"metric": metric, "step": step, "value": value} for step, value in training]
    rows += [
        {"metric": "eval/pass@1", "step": int(step), "value": e["pass@1"], "low": e["low"], "high": e["high"]}
        for step, e in evaluations.items()
    ]
    columns = ["metric", "step", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).astype({"value": float, "low": float, "high": float}).assign(
        label=entry.label, run=entry.folder.name
    )  # fmt: skip


@lru_cache(512)
def _metric(folder: Path, metric: str, _: int) -> list[tuple[int, float]]:
    from rlkit.results.read import read

    found = read(folder, metric)
    found = found[found["data_source"] == "all"]
    return list(zip(found["step"].astype(int), found["value"], strict=True))


def _difference(group: Sequence[Entry], base: Sequence[Entry]) -> str:
    one, other = _by_task(group), _by_task(base)
    return "" if one is None or other is None else _estimate((one - other).dropna(), "+")


def _estimate(by_task: "pd.Series | None", sign: str = "") -> str:
    """The mean over problems with its 95 % interval."""
    from rlkit.evaluation.passk import bootstrap_mean
    from rlkit.seeds import generator

    if by_task is None or by_task.empty:
        return ""
    value, low, high, _ = bootstrap_mean(by_task.to_numpy(), rng=generator("panel"), draws=2000)
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _by_task(group: Sequence[Entry], end: str = "max") -> "pd.Series | None":
    """The share of correct answers to each held-out problem at the last ("max") or first ("min") evaluation of
    each run, over all seeds."""
    import pandas as pd

    files = [entry.folder / "evals.parquet" for entry in group]
    parts = [_answers(path, end, path.stat().st_mtime_ns) for path in files if path.exists()]
    return pd.concat(parts).groupby("task_id")["correct"].mean() if parts else None


@lru_cache(256)
def _answers(path: Path, end: str, _: int) -> "pd.DataFrame":
    import pandas as pd

    found = pd.read_parquet(path, columns=["step", "task_id", "correct"])
    found = found[(found["step"] == found["step"].agg(end)) & found["correct"].notna()]
    return found.assign(correct=found["correct"].astype(float))
