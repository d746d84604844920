"""All figures and tables of a study, from its folder alone and without a kernel: `rlkit figures`."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from rlkit.errors import UserError, did_you_mean
from rlkit.figures.catalogue import FIGURES
from rlkit.figures.drawing import Drawing, cautions, latex_table, sources
from rlkit.figures.labels_and_looks import LABELS, WIDTHS, width_of
from rlkit.files import read_json, write_text
from rlkit.laws import LawFit, fit
from rlkit.laws.report import escaped, findings
from rlkit.measures import summary
from rlkit.measures.comparisons import differences
from rlkit.measures.fits import FOR_LAW, SIZE
from rlkit.results.read import read, read_evals


@dataclass(frozen=True)
class StudyData:
    """What the figures of a study (outputs/<study>) read, when first asked for. `law` is fitted over the runs; ""
    repeats the fit of the study's analysis, where it has one, or fits a power of the size to three sizes or more."""

    folder: Path
    law: str = ""

    @cached_property
    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """`rlkit.read` and `rlkit.read_evals` of the runs that the study's file asks for."""
        return read(self.folder).dropna(subset="cell"), read_evals(self.folder).dropna(subset="cell")

    @cached_property
    def ungraded(self) -> list[str]:
        """The cells that are left out everywhere, for want of a graded sample before or after training."""
        return summary.ungraded(self.tables[1])

    def _graded(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of graded cells."""
        if table.empty or SIZE not in table:
            raise UserError(f"No run of {self.folder} has been evaluated yet: rlkit status {self.folder}.")
        return table[~table["cell"].isin(self.ungraded)]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return self._graded(self.tables[0])

    @cached_property
    def evals(self) -> pd.DataFrame:
        return self._graded(self.tables[1])

    @property
    def holdout_after(self) -> int | None:
        """The step after which the study's file holds evaluations out of the laws along training."""
        return read_json(self.folder / "study.json").get("holdout_after")

    @cached_property
    def points(self) -> pd.DataFrame:
        return summary.final(self.metrics)

    @cached_property
    def change(self) -> pd.DataFrame:
        return summary.before_after(self.evals)

    @cached_property
    def fit(self) -> LawFit:
        """The law over the runs, with the columns, loss and bootstrap of the study's analysis."""
        record = read_json(self.folder / "analysis" / "law.json").get("fit", {})
        law = self.law or record.get("law") or ("power" if self.metrics[SIZE].nunique() >= FOR_LAW else "")
        if not law:
            raise UserError(f"No law was fitted in {self.folder}: choose one with --law, e.g. --law power.")
        if record.get("law") != law:
            return fit(self.points, law, y="error", x=SIZE)
        columns = dict(record["columns"])
        return fit(self.points, law, y=columns.pop("y"), x=columns, **_options(record))

    def show(self, name: str, venue: str = "neurips") -> None:
        """Draw a figure of the study (see `FIGURES`) in a notebook, and keep it in the study's figures/; where there is
        no data for it, say why. A UserError for an unknown figure or venue."""
        from IPython.display import display

        for file, drawing in draw(self, venue, [name]):
            if isinstance(drawing, UserError):
                print(f"{name}: {drawing}")
            else:
                drawing.save(self.folder / "figures" / file)
                if file != name:
                    print(file)
                display(drawing)

    def keep(self, name: str, drawing: Drawing, key: str = "") -> Drawing:
        """Write a drawing to the study's figures/ as the figure of a name, with its caption; return it to be shown.
        `key`: what tells it from others of the name."""
        made = _captioned(self, name, key, drawing)
        made.save(self.folder / "figures" / f"{name}_{key}".strip("_"))
        return made

    def left_out(self) -> str:
        """That cells are left out, in a sentence; empty where none is."""
        why = "Left out, without a graded sample before or after training"
        return f"{why}: {', '.join(self.ungraded)}." if self.ungraded else ""


def draw(study: StudyData, venue: str, only: Sequence[str] = ()) -> Iterator[tuple[str, Drawing | UserError]]:
    """Each figure, or `only` these, by its file's name, or why the study has none; a UserError for unknown ones."""
    width_of(venue)
    for name in (name for name in only if name not in FIGURES):
        near = did_you_mean(name, FIGURES)
        raise UserError(f"There is no figure {name!r}.{near} Known: {', '.join(FIGURES)}.")
    for name in only or FIGURES:
        try:
            made = FIGURES[name].draw(study, venue)
        except UserError as problem:
            yield name, problem
            continue
        for key, one in (made if isinstance(made, dict) else {"": made}).items():
            yield f"{name}_{key}".strip("_"), _captioned(study, name, key, one)


def _captioned(study: StudyData, name: str, key: str, one: Drawing) -> Drawing:
    """The drawing with the runs behind it, where it does not say, and with what its caption has to say."""
    left_out = study.left_out() if name == "before_after" else ""
    cautions_of_all = (cautions(one.sources), left_out, summary.equal_cells_sentence(study.points))
    words = filter(None, (key and f"{key}:", FIGURES[name].caption, one.caption, *cautions_of_all))
    return replace(one, sources={**sources(study.metrics), **one.sources}, caption=" ".join(words))


def tables(study: StudyData) -> dict[str, str]:
    """LaTeX tables by their file's name: the change of pass@1, also of suites, the law and differences of variants."""
    joined, found = _ends(study.change), {}
    with suppress(UserError):
        missed = summary.outside(summary.held_out_error(study.fit, study.points).to_dict("records"))
        notes = [*missed, *findings(study.fit.warnings, LABELS)]
        found["law"] = study.fit.to_latex(note=escaped(" ".join(notes))) + "\n"
    held = joined["held_out before"].astype(bool)
    joined["cell"] = joined["cell"].where(~held, joined["cell"] + "†")
    mark, caution = " of the law's fit" if found else "", summary.unequal_steps(study.change)
    words = [f"† held out{mark}." if any(held) else "", caution, escaped(study.left_out())]
    pairs = {f"pass@1 {when}": (f"low {when}", f"high {when}") for when in ("before", "after")}
    columns = ["cell", "runs", "problems", *["steps"] * bool(caution), *pairs]
    found["before_after"] = latex_table(joined, pairs, " ".join(filter(None, words)), columns)
    if suites := summary.suite_changes(study.folder):
        apart = pd.concat([_ends(change).assign(suite=name) for name, change in suites.items()])
        found["suites"] = latex_table(apart, pairs, columns=["suite", "cell", "runs", "problems", *pairs])
    with suppress(UserError):
        apart = differences(study.evals)
        over = {"over problems": ("low", "high"), "over seeds too": ("low_seeds", "high_seeds")}
        apart["over problems"] = apart["difference"]
        apart["over seeds too"] = apart["difference"].where(apart["low_seeds"].notna())
        note = r"Final pass@1 less the baseline's, with 95 \% intervals."
        columns = ["cell", "baseline", "problems", "seeds", *over]
        found["differences"] = latex_table(apart, over, note, columns)
    return found


def _ends(change: pd.DataFrame) -> pd.DataFrame:
    """A row a cell: the columns of `before_after`, before and after, and its counts."""
    before, after = (change[change["when"] == when] for when in ("before", "after"))
    joined = before.merge(after, on="cell", suffixes=(" before", " after"))
    return joined.rename(columns={"runs after": "runs", "tasks after": "problems", "steps after": "steps"})


def render(
    folder: str | Path, venue: str = "neurips", out: str | Path | None = None, law: str = "", only: Sequence[str] = ()
) -> tuple[list[Path], dict[str, str], list[str]]:
    """Write every figure and table of a study to `out`, by default its own figures/ folder, and figures.tex, which has
    each figure with its caption and label to paste into a paper; `only` these of `FIGURES` without the rest. Equal
    results give equal bytes. A UserError where no run has been evaluated, or for an unknown venue, law or figure.

    Returns:
        The files; for each figure that was left out the reason; the cells that are in none, without a graded sample.
    """
    study = StudyData(Path(folder), law)
    target = Path(out) if out else study.folder / "figures"
    files, missing, environments = list[Path](), dict[str, str](), list[str]()
    width_of(venue)
    _ = (study.change, study.fit if law else None)  # without results, or a law of that name, it ends here
    for name, drawing in draw(study, venue, only):
        if isinstance(drawing, UserError):
            missing[name] = str(drawing)
        else:
            files += drawing.save(target / name)
            wide = drawing.figure.get_figwidth() > WIDTHS[venue.removesuffix("-text")]
            environments.append(drawing.to_latex(f"{target.resolve().name}/{name}.pdf", wide))
    texts = {} if only else {**tables(study), "figures": "\n".join(environments)}
    for name, text in texts.items():
        write_text(target / f"{name}.tex", text)
        files.append(target / f"{name}.tex")
    return files, missing, study.ungraded


def _options(record: dict[str, Any]) -> dict[str, Any]:
    """The options of `rlkit.fit` that made the fit of a record (`LawFit.to_json`)."""
    loss, drawn = record["loss"], record["bootstrap"] or {"draws": 0, "lost": 0, "kind": "residual", "seed": 0}
    return {key: record["left_out"].get(key) for key in ("cluster", "block", "weights")} | {
        "loss": loss["name"],
        "delta": loss["delta"] or None,
        "log": {"log": True, "linear": False}.get(loss["residuals"]),
        "bootstrap": drawn["draws"] + drawn["lost"],
        "resample": "case" if drawn["kind"] in ("case", "cluster") else "residual",
        "seed": drawn["seed"],
    }
