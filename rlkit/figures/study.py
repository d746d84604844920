"""All figures and tables of a study, from its folder alone and without a kernel: `rlkit figures`."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import UserError
from rlkit.figures.drawing import Drawing, sources
from rlkit.files import write_text
from rlkit.store import read_json

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.laws import LawFit

COMPUTE = "compute/total_flops"
TRAINING = ("critic/score/mean", "actor/grad_norm", "actor/entropy", "response_length/mean")


@dataclass(frozen=True)
class StudyData:
    """What the figures of a study read; each part is read when first asked for.

    Attributes:
        folder: outputs/<study>.
        law: fit this one over the runs; "" repeats the fit of the study's analysis, where it has one.
    """

    folder: Path
    law: str = ""

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        from rlkit.results import read

        return _placed(read(self.folder))

    @cached_property
    def evals(self) -> "pd.DataFrame":
        from rlkit.results import read_evals

        return _placed(read_evals(self.folder))

    @cached_property
    def points(self) -> "pd.DataFrame":
        from rlkit.summary import final

        return final(self.metrics)

    @cached_property
    def change(self) -> "pd.DataFrame":
        from rlkit.summary import before_after

        return before_after(self.evals)

    @cached_property
    def fit(self) -> "LawFit":
        """The law over the runs, with the columns, loss and bootstrap of the study's analysis."""
        from rlkit.laws import GroupedFit, fit

        found = read_json(self.folder / "analysis" / "law.json").get("fit", {})
        law = self.law or found.get("law")
        if not law:
            raise UserError(f"No law was fitted in {self.folder}: choose one with --law, e.g. --law power.")
        same = found.get("law") == law
        columns = dict(found["columns"]) if same else {"y": "error", "x": "parameters_non_embedding"}
        bootstrap = found.get("bootstrap") or {"draws": 1000, "kind": "residual"}
        made = fit(
            self.points, law, y=columns.pop("y"), x=columns if same else columns["x"],
            loss=found["loss"]["name"] if same else "ls", bootstrap=bootstrap["draws"],
            resample=bootstrap["kind"], holdout={"held_out": [True]},
        )  # fmt: skip
        assert not isinstance(made, GroupedFit)
        return made


def before_after(study: StudyData, venue: str) -> Drawing:
    from rlkit.figures.runs import before_after

    return before_after(study.change, venue)


def learning_curves(study: StudyData, venue: str) -> Drawing:
    from rlkit.figures.runs import learning_curves

    return learning_curves(study.metrics, COMPUTE, by="cell", venue=venue, evals=study.evals)


def learning_curves_by_step(study: StudyData, venue: str) -> Drawing:
    from rlkit.figures.runs import learning_curves

    return learning_curves(study.metrics, by="cell", venue=venue, evals=study.evals)


def training(study: StudyData, venue: str) -> Drawing:
    from rlkit.figures.runs import metric_panels

    return metric_panels(study.metrics, TRAINING, by="cell", venue=venue)


def scaling_law(study: StudyData, venue: str) -> Drawing:
    from rlkit.figures.runs import scaling_law
    from rlkit.laws import drawings

    if len(study.fit.law.columns) == 1:
        return scaling_law(study.fit, study.points, by="cell", venue=venue)
    return drawings.law(study.fit, study.points, venue)


def residuals(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.residuals(study.fit, venue)


def law_parameters(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.intervals({study.fit.law.name.replace("_", " "): study.fit}, venue=venue)


def collapse(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.collapse(study.metrics, COMPUTE, venue=venue)


def frontier(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.frontier(study.metrics, COMPUTE, venue=venue)


def pass_at_k(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.pass_at_k(study.evals, venue=venue)


def transfer(study: StudyData, venue: str) -> Drawing:
    from rlkit.laws import drawings

    return drawings.transfer(study.evals, venue=venue)


FIGURES: dict[str, Callable[[StudyData, str], Drawing]] = {
    figure.__name__: figure
    for figure in (
        before_after, learning_curves, learning_curves_by_step, training, scaling_law, residuals, law_parameters,
        collapse, frontier, pass_at_k, transfer,
    )
}  # fmt: skip
"""Every figure of a study by its file's name. One that a study has no data for raises a UserError and is left
out; add yours here."""


def draw(study: StudyData, venue: str) -> Iterator[tuple[str, Drawing | UserError]]:
    """Each figure by name, or why the study has none."""
    for name, figure in FIGURES.items():
        try:
            drawing = figure(study, venue)
        except UserError as problem:
            yield name, problem
        else:
            yield name, replace(drawing, sources={**sources(study.metrics), **drawing.sources})


def tables(study: StudyData) -> dict[str, str]:
    """LaTeX tables by their file's name: the change of pass@1, and the law where there is one."""
    from rlkit.figures.tables import latex_table

    before, after = (study.change[study.change["when"] == when] for when in ("before", "after"))
    joined = before.merge(after, on="cell", suffixes=(" before", " after"))
    columns = [f"{name} {when}" for when in ("before", "after") for name in ("pass@1", "low", "high")]
    shown = joined[["cell", "runs after", "tasks after", *columns]]
    shown = shown.rename(columns={"runs after": "runs", "tasks after": "problems"})
    pairs = {f"pass@1 {when}": (f"low {when}", f"high {when}") for when in ("before", "after")}
    found = {"before_after": latex_table(shown, pairs)}
    with suppress(UserError):
        found["law"] = study.fit.to_latex() + "\n"
    return found


def render(
    folder: str | Path, venue: str = "neurips", out: str | Path | None = None, law: str = ""
) -> tuple[list[Path], dict[str, str]]:
    """Write every figure and table of a study; equal results give equal bytes.

    Args:
        folder: outputs/<study>. venue: one of `rlkit.figures.WIDTHS`.
        out: default: the study's own figures/ folder.
        law: see `StudyData`.

    Returns:
        The files, and for each figure that was left out the reason.

    Raises:
        UserError: there are no runs, or none that the study's file asks for; an unknown venue.
    """
    study = StudyData(Path(folder), law)
    target = Path(out) if out else study.folder / "figures"
    files: list[Path] = []
    missing: dict[str, str] = {}
    _check_venue(venue)
    for name, drawing in draw(study, venue):
        if isinstance(drawing, UserError):
            missing[name] = str(drawing)
        else:
            files += drawing.save(target / name)
    for name, text in tables(study).items():
        write_text(target / f"{name}.tex", text)
        files.append(target / f"{name}.tex")
    return files, missing


def _check_venue(venue: str) -> None:
    from rlkit.errors import did_you_mean
    from rlkit.figures.theme import WIDTHS

    if venue not in WIDTHS:
        raise UserError(f"venue is {venue!r}.{did_you_mean(venue, WIDTHS)} Use one of {', '.join(WIDTHS)}.")


def _placed(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of runs that the study's file asks for; runs outside a study are cells of their own."""
    if "cell" not in table or table["cell"].isna().all():
        return table.assign(cell=table["run"], held_out=False)
    return table.dropna(subset="cell")
