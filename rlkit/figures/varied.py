"""Figures along what a study varied: model size and steps, unique data, the supervised share, the mixture.

Each takes a study and a venue, and raises a UserError where the study did not vary it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlkit.errors import UserError
from rlkit.figures import contrasts, laws, runs
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import looks
from rlkit.laws import LawFit, compare, fit
from rlkit.measures import comparisons, learning
from rlkit.measures.tables import curve_table

if TYPE_CHECKING:
    import pandas as pd

    from rlkit.figures.study import StudyData

SIZE, UNIQUE, SHARE = "parameters_non_embedding", "data.train_max_samples", "data.sft_ratio"
SIGMOID = (
    "The sigmoid (arXiv 2510.13786) rises from R0 to A, is half way at C_mid and is steeper with larger B."
)
FORMS = ("power", "saturating_power")
FOR_TRAINING_LAW = 5  # evaluations after the start, for the four parameters of a sigmoid
FOR_LAW = 3  # values of its column that a law of one needs at least


def law_of_size_and_steps(study: "StudyData", venue: str) -> Drawing:
    """One law for all curves after the start: ln L = E0(N) − k(N)·ln steps (arXiv 2509.25300)."""
    _needs(study, SIZE, FOR_LAW)
    curves = curve_table(study.metrics, "step", "eval/pass@1", "cell")
    facts = study.points[["run", SIZE, "held_out"]]
    curves = curves[curves["step"] > 0].merge(facts, on="run").assign(error=lambda t: 1 - t["eval/pass@1"])
    if curves["step"].nunique() < FOR_LAW:
        raise UserError(f"The study was evaluated at fewer than {FOR_LAW} steps after the start.")
    columns = {"N": SIZE, "X": "step"}
    found = fit(
        curves, "tan", x=columns, y="error", loss="ls", cluster="run", bootstrap=200,
        holdout={"held_out": [True]},
    )  # fmt: skip
    return laws.law(found, curves, venue=venue)  # type: ignore[arg-type]


def along(
    study: "StudyData", law: str = "sigmoid", compute: str = "compute/total_flops"
) -> dict[str, LawFit]:
    """A law along training, of pass@1 after the start against compute, for each cell that is not held out; the sigmoid
    (arXiv 2510.13786) rises from R0 to A, is half way at C_mid, and is steeper with larger B. The evaluations of a run
    belong together: runs are resampled whole, and the noise of a cell of one run is correlated in time.

    Raises:
        UserError: fewer evaluations after the start than a law needs.
    """
    seen = study.metrics[~study.metrics["held_out"].astype(bool)]
    curves = curve_table(seen, compute, "eval/pass@1", "cell")
    curves = curves[curves["step"] > 0]
    if (found := curves.groupby("run").size().min()) < FOR_TRAINING_LAW:
        raise UserError(
            f"This needs {FOR_TRAINING_LAW} evaluations after the start, and a run has {found}: set a lower "
            "trainer.test_freq."
        )
    made = {}
    for cell, part in curves.groupby("cell"):
        together = {"cluster": "run"} if part["run"].nunique() > 1 else {"block": "step"}
        made[cell] = fit(part, law, x=compute, y="eval/pass@1", bootstrap=500, **together)
    return made


def training_law(study: "StudyData", venue: str, found: dict[str, LawFit] | None = None) -> Drawing:
    """What the law along training is in each cell.

    Args:
        found: from `along`, which by default fits the sigmoid.
    """
    found = along(study) if found is None else found
    cells = [cell for cell in looks(study.metrics, "cell") if cell in found]
    drawing = laws.intervals({cell: found[cell] for cell in cells}, venue=venue)
    drawn = study.metrics[study.metrics["cell"].isin(cells)]
    form = found[cells[0]].law
    words = SIGMOID if form.name == "sigmoid" else f"The law: {form.source}."
    return replace(drawing, sources=sources(drawn) | drawing.sources, caption=words)


def forms(study: "StudyData", venue: str) -> Drawing:
    """Rival forms of a law in size, by what they predict."""
    _needs(study, SIZE, FOR_LAW + 1)
    return laws.forms(compare(study.points, list(FORMS), x=SIZE, y="error", loss="ls"), venue)


def sample_efficiency(study: "StudyData", venue: str) -> Drawing:
    """Response tokens until a level of pass@1 is reached."""
    need = learning.needed(study.metrics, "tokens/response", levels=5)
    return contrasts.against(need, "level", "tokens/response", by="cell", venue=venue)


def data(study: "StudyData", venue: str) -> Drawing:
    """pass@1 at the end against unique tasks."""
    ends = _with_column(study, UNIQUE).query("when == 'after'")
    return contrasts.against(ends, UNIQUE, "pass@1", by="model.path", venue=venue, log=True)


def marginal_returns(study: "StudyData", venue: str) -> Drawing:
    """What a doubling of unique tasks adds."""
    _needs(study, UNIQUE)
    returns = comparisons.marginal_returns(study.evals, study.metrics, UNIQUE, by="model.path")
    return contrasts.against(returns, "to", "per_doubling", by="model.path", venue=venue, log=True, zero=True)


def law_of_data(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """The error at the end as a power of unique tasks, a figure a model: one line through two sizes would be of
    neither."""
    _needs(study, UNIQUE, FOR_LAW)
    models = {name: study.points[study.points["model.path"] == name] for name in looks(study.points)}
    seen = {name: part[~part["held_out"].astype(bool)] for name, part in models.items()}
    if (seen_most := max(part[UNIQUE].nunique() for part in seen.values())) < FOR_LAW:
        raise UserError(
            f"This needs {FOR_LAW} values of {UNIQUE} of a model that are not held out, not {seen_most}."
        )
    if any(part.groupby(UNIQUE)["cell"].nunique().max() > 1 for part in models.values()):
        raise UserError(
            f"The study varies more than model.path and {UNIQUE}, of which this law would know nothing."
        )
    found = {}
    for name in (name for name, part in seen.items() if part[UNIQUE].nunique() >= FOR_LAW):
        law = fit(models[name], "power", x=UNIQUE, y="error", loss="ls", bootstrap=500, resample="residual")
        short = str(name).rsplit("/", 1)[-1] if len(models) > 1 else ""
        found[short] = laws.law(law, models[name], by="cell", venue=venue)  # type: ignore[arg-type]
    return found


def sft_ratio(study: "StudyData", venue: str) -> Drawing:
    """pass@1 after the supervised part, and at the end, against its share of the tasks."""
    change = _with_column(study, SHARE).sort_values([SHARE, "when"])
    part = change["when"].map({"before": "after the supervised part", "after": "at the end"})
    return contrasts.against(change.assign(part=part), SHARE, "pass@1", by="part", venue=venue)


def training(study: "StudyData", metrics: Sequence[str], venue: str) -> dict[str, Drawing]:
    """Metrics of training, a figure a model where the study has variants: a mean over sizes would be of none."""
    parts, by = _by_model(study.metrics)
    return {name: runs.metric_panels(part, metrics, by=by, venue=venue) for name, part in parts.items()}


def domains(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """Each domain and each suite along training, a figure a model where the study has variants."""
    measured = study.metrics.loc[study.metrics["metric"] == "eval/pass@1", "data_source"]
    if len(set(measured) - {"all"}) < 2:
        raise UserError("The study has one domain and no suite.")
    parts, by = _by_model(study.metrics)
    return {name: contrasts.domain_curves(part, by=by, venue=venue) for name, part in parts.items()}


def transfer(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """How much each training changed pass@1 in each domain, a matrix a model where the study has variants."""
    parts, by = _by_model(study.evals)
    return {name: laws.transfer(part.assign(cell=part[by]), venue=venue) for name, part in parts.items()}


def _by_model(table: "pd.DataFrame") -> "tuple[dict[str, pd.DataFrame], str]":
    """The rows of each model by its name, the smallest first, and the column to tell apart within; one part where no
    model has variants of its own."""
    if "variant" not in table or table["variant"].nunique() < 2 or table["model.path"].nunique() < 2:
        return {"": table}, "cell"
    parts = dict(list(table.groupby("model.path")))
    return {str(path).rsplit("/", 1)[-1]: parts[path] for path in looks(table)}, "variant"


def _needs(study: "StudyData", column: str, values: int = 2) -> None:
    found = study.metrics[column].nunique() if column in study.metrics else 0
    if found < values:
        raise UserError(f"This needs {values} values of {column}, and the study has {found}.")


def _with_column(study: "StudyData", column: str) -> "pd.DataFrame":
    """pass@1 before and after with a column of the configuration."""
    _needs(study, column)
    table = study.change
    facts = study.metrics.groupby("cell", as_index=False)[[column, "model.path"]].first()
    extra = [c for c in facts if c == "cell" or c not in table]
    merged = table.merge(facts[extra], on="cell")
    merged.attrs = table.attrs
    return merged
