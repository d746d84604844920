"""The figures of a study: each a function of the study's data and a venue, by its name, whose docstring is the caption.

Add yours with `@figure`. A function raises a UserError where the study has no data for its figure.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlkit.errors import UserError
from rlkit.figures import contrasts, laws, runs
from rlkit.figures.axes import LETTERED, legend_below
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import WIDTHS, looks, styled
from rlkit.laws import LawFit, fit
from rlkit.measures import comparisons, learning, summary
from rlkit.measures.tables import curve_table, in_order, remember

if TYPE_CHECKING:
    from rlkit.figures.study import StudyData

SIZE, UNIQUE, SHARE = "parameters_non_embedding", "data.train_max_samples", "data.sft_ratio"
COMPUTE, PASSED, TOKENS = "compute/total_flops", "eval/pass@1", "tokens/response"
TRAINING = ("critic/score/mean", "actor/grad_norm", "actor/entropy", "response_length/mean")
FOR_TRAINING_LAW = 5  # evaluations after the start, for the four parameters of a sigmoid
FOR_LAW = 3  # values of its column that a law of one needs at least
LEAST = 3  # panels of the main figure

Draw = Callable[..., Drawing | dict[str, Drawing]]
FIGURES: dict[str, Draw] = {}
"""Every figure of a study by its file's name. Several drawings are by what distinguishes them, which is added to the
file's name."""


def figure(draw: Draw) -> Draw:
    """Add a function to the figures under its name."""
    FIGURES[draw.__name__] = draw
    return draw


def caption(name: str) -> str:
    """What a reader has to know to read the figure of a name."""
    return " ".join((FIGURES[name].__doc__ or "").split())


@figure
def before_after(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 before (hollow) and after training (filled), with 95 % intervals over problems."""
    return contrasts.before_after(study.change, venue)


@figure
def learning_curves(study: "StudyData", venue: str, ax: Axes | None = None) -> Drawing:
    """Held-out pass@1 against the compute of reinforcement learning (a warm start not counted): thick the mean over
    seeds with its 95 % interval over problems, thin the runs."""
    return runs.learning_curves(study.metrics, COMPUTE, by="cell", venue=venue, evals=study.evals, ax=ax)


@figure
def learning_curves_by_step(study: "StudyData", venue: str, ax: Axes | None = None) -> Drawing:
    """Held-out pass@1 along training: thick the mean over seeds with its 95 % interval over problems, thin runs."""
    return runs.learning_curves(study.metrics, "step", by="cell", venue=venue, evals=study.evals, ax=ax)


@figure
def training(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """Metrics of training: thick the mean over runs, smoothed over a twentieth of the steps; faint, where they are
    few, the runs."""
    return _by_model(study.metrics, lambda df, by: runs.metric_panels(df, TRAINING, by=by, venue=venue))


@figure
def domains(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """pass@1 of each held-out domain and of each suite along training: thick the mean over seeds, thin the runs."""
    measured = study.metrics.loc[study.metrics["metric"] == PASSED, "data_source"]
    if len(set(measured) - {"all"}) < 2:
        raise UserError("The study has one domain and no suite.")
    return _by_model(study.metrics, lambda df, by: runs.domain_curves(df, by, venue))


@figure
def transfer(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """Change of held-out pass@1 in each domain (columns) by each training (rows), with 95 % intervals."""
    return _by_model(study.evals, lambda df, by: contrasts.transfer(df.assign(cell=df[by]), venue=venue))


@figure
def differences(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """Final held-out pass@1 less that of the baseline, paired by problem: thick the 95 % interval over problems, for
    these very runs; thin, where a cell has several seeds, that over seeds and problems."""
    return contrasts.differences(comparisons.differences(study.evals), venue)


@figure
def equal_compute(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 at the last evaluation within the FLOPs of training (no warm start) that every run of the model
    has spent, with 95 % intervals over problems. The update computes no sequence of zero advantage unless a critic, a
    KL or an entropy term needs it, so that algorithms with more of those get further."""
    return contrasts.ranked(comparisons.at_compute(study.evals, study.metrics, COMPUTE), venue)


@figure
def sample_efficiency(study: "StudyData", venue: str, ax: Axes | None = None) -> Drawing:
    """Response tokens until held-out pass@1 reaches a level above its model's start, the mean over the runs that reach
    it (hollow: not all of them do); bars span those."""
    need = learning.needed(study.metrics, TOKENS, levels=5)
    return contrasts.against(need, "level", TOKENS, by="cell", venue=venue, ax=ax)


@figure
def scaling_law(study: "StudyData", venue: str, ax: Axes | None = None) -> Drawing:
    """The law through the filled points, with a 95 % band: of a new run for a law of one column, of the curve for
    others. Hollow points were held out of the fit. On the grey ground the law is extrapolated: a star is what it
    predicts for a run that was held out, with its interval. A band ends where what is possible does."""
    return laws.law(study.fit, study.points, by="cell", venue=venue, ax=ax)


@figure
def residuals(study: "StudyData", venue: str) -> Drawing:
    """Residuals of the law in its own space against what it predicts: a trend is what the law does not describe."""
    return laws.residuals(study.fit, venue)


@figure
def law_of_size_and_steps(study: "StudyData", venue: str) -> Drawing:
    """One law of size and steps, ln L = E0(N) - k(N) ln steps (arXiv 2509.25300), with 95 % bands."""
    _needs(study, SIZE, FOR_LAW)
    curves = curve_table(study.metrics, "step", PASSED, "cell")
    facts = study.points[["run", SIZE, "held_out"]]
    curves = curves[curves["step"] > 0].merge(facts, on="run").assign(error=lambda t: 1 - t[PASSED])
    if curves["step"].nunique() < FOR_LAW:
        raise UserError(f"The study was evaluated at fewer than {FOR_LAW} steps after the start.")
    found = fit(
        curves, "tan", x={"N": SIZE, "X": "step"}, y="error", loss="ls", cluster="run", bootstrap=200,
        holdout={"held_out": [True]},
    )  # fmt: skip
    return laws.law(found, curves, venue=venue)


@figure
def training_law(study: "StudyData", venue: str) -> Drawing:
    """The law of held-out pass@1 in the compute of training of each cell that is not held out, with 95 % bands of the
    curves."""
    return laws.law(*along(study), by="cell", venue=venue)


@figure
def data(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 at the end against unique training tasks, with 95 % intervals over problems."""
    ends = _with_column(study, UNIQUE).query("when == 'after'")
    return contrasts.against(ends, UNIQUE, "pass@1", by="model.path", venue=venue, log=True)


@figure
def law_of_data(study: "StudyData", venue: str) -> dict[str, Drawing]:
    """Held-out error at the end as a power of unique training tasks, with the 95 % band of a new run."""
    _needs(study, UNIQUE, FOR_LAW)
    points, found = study.points, {}
    if points.groupby(["model.path", UNIQUE])["cell"].nunique().max() > 1:
        raise UserError(
            f"The study varies more than model.path and {UNIQUE}, of which this law would know nothing."
        )
    most = points[~points["held_out"].astype(bool)].groupby("model.path")[UNIQUE].nunique()
    for name in looks(points):  # a figure a model: one line through two sizes would be of neither
        if most.get(name, 0) >= FOR_LAW:
            part = points[points["model.path"] == name]
            law = fit(part, "power", x=UNIQUE, y="error", loss="ls", bootstrap=500, resample="residual")
            short = str(name).rsplit("/", 1)[-1] if points["model.path"].nunique() > 1 else ""
            found[short] = laws.law(law, part, by="cell", venue=venue)
    if not found:
        raise UserError(
            f"This needs {FOR_LAW} values of {UNIQUE} of a model that are not held out, not {most.max()}."
        )
    return found


@figure
def sft_ratio(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 after the supervised part (before RL) and at the end, against the share of tasks with worked
    answers, with 95 % intervals over problems."""
    change = _with_column(study, SHARE).sort_values([SHARE, "when"])
    part = change["when"].map({"before": "after the supervised part", "after": "at the end"})
    return contrasts.against(change.assign(part=part), SHARE, "pass@1", by="part", venue=venue)


@figure
def pass_at_k(study: "StudyData", venue: str, ax: Axes | None = None) -> Drawing:
    """pass@k before (dashed, hollow) and after training (solid), with 95 % intervals over problems."""
    return contrasts.pass_at_k_ends(comparisons.pass_at_k_ends(study.evals), venue, ax)


@figure
def diversity(study: "StudyData", venue: str) -> Drawing:
    """Distinct responses to a problem, as a share of its samples, before (hollow) and after training (filled), with
    95 % intervals over problems."""
    return contrasts.before_after(comparisons.diversity(study.evals), venue, "distinct")


def along(
    study: "StudyData", law: str = "sigmoid", compute: str = COMPUTE
) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """A law along training, of pass@1 after the start against compute, for each cell that is not held out, and the
    evaluations that they describe: those after `holdout_after` are held out. Runs are resampled whole, and the noise of
    a cell of one run is correlated in time. Raises UserError where a run has too few evaluations to fit."""
    seen = study.metrics[~study.metrics["held_out"].astype(bool)]
    curves = curve_table(seen, compute, PASSED, "cell").query("step > 0")
    curves = curves.assign(held_out=curves["step"] > (study.holdout_after or np.inf))
    if (found := curves[~curves["held_out"]].groupby("run").size().min()) < FOR_TRAINING_LAW:
        raise UserError(
            f"This needs {FOR_TRAINING_LAW} evaluations after the start, and a run has {found}: set a lower "
            "trainer.test_freq."
        )
    made, parts = {}, dict(list(curves.groupby("cell")))
    for cell in (cell for cell in in_order(seen, "cell")["cell"] if cell in parts):
        together = {"cluster": "run"} if parts[cell]["run"].nunique() > 1 else {"block": "step"}
        made[cell] = fit(parts[cell], law, x=compute, y=PASSED, bootstrap=500, **together)
    return made, remember(curves, seen, "cell")


def foretold(found: dict[str, LawFit], curves: pd.DataFrame) -> pd.DataFrame:
    """What the laws of `along` foretell of each cell's last evaluation, beside what was observed, as
    `rlkit.measures.summary.held_out_error` has it; empty where the study holds no evaluation out."""
    held = curves[curves["held_out"]]
    last = held[held["step"] == held.groupby("run")["step"].transform("max")]
    parts = [summary.held_out_error(found[str(cell)], part) for cell, part in last.groupby("cell")]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.assign(**{end: table[end].clip(0, 1) for end in ("low", "high") if end in table})


def _metric(name: str) -> Callable[..., Drawing]:
    return lambda study, venue, ax: runs.learning_curves(study.metrics, "step", name, "cell", venue, ax=ax)


PANELS: dict[str, Callable[..., Drawing]] = {
    "held-out pass@1 along training, with 95 % intervals over problems": learning_curves_by_step,
    "the same against compute": learning_curves,
    "the law with its 95 % prediction band; hollow and beyond: held out": scaling_law,
    "response tokens to reach a level, hollow where not all runs do": sample_efficiency,
    "pass@k before (dashed) and after training": pass_at_k,
    "score of the training samples": _metric("critic/score/mean"),
    "entropy of the policy": _metric("actor/entropy"),
}
"""What a panel of the main figure shows, in the order of letters; the first six that the study has data for."""


@figure
def main(study: "StudyData", venue: str) -> Drawing:
    """What the study found, at text width."""
    width, found = WIDTHS.get(f"{venue}-text", WIDTHS[venue]), dict[str, Drawing]()
    small = {"axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7}
    small |= {"lines.markersize": 3, "lines.linewidth": 1}
    with styled(), matplotlib.rc_context(small):
        fig = Figure(figsize=(width, 0.62 * width), label=LETTERED)
        axes = list(fig.subplots(2, 3).flat)
        for shows, draw in PANELS.items():
            if len(found) == len(axes):
                break
            ax, letter = axes[len(found)], "abcdef"[len(found)]
            try:
                found[f"({letter}) {shows}."] = draw(study, venue, ax=ax)
                ax.set_title(f"({letter})", loc="left", fontweight="bold")
            except UserError:
                ax.clear()
        if len(found) < LEAST:
            raise UserError(f"The main figure needs data for {LEAST} panels, and the study has {len(found)}.")
        for ax in axes[len(found) :]:
            ax.remove()
        styles = looks(study.metrics, "cell")
        if len(styles) > 1:
            legend_below(fig, [Line2D([], [], **style) for style in styles.values()], list(map(str, styles)))
    tables = [drawing.table.assign(panel=words[1]) for words, drawing in found.items()]
    told = {key: value for drawing in found.values() for key, value in drawing.sources.items()}
    made = told | sources(study.metrics)
    return Drawing(fig, pd.concat(tables, ignore_index=True), made, " ".join(found))


def _by_model(table: pd.DataFrame, draw: Callable[[pd.DataFrame, str], Drawing]) -> dict[str, Drawing]:
    """A drawing of the rows of each model by its name, the smallest first, and of the column to tell apart within; one
    of all where no model has variants of its own: a mean over sizes would be of none."""
    if "variant" not in table or table["variant"].nunique() < 2 or table["model.path"].nunique() < 2:
        return {"": draw(table, "cell")}
    parts = dict(list(table.groupby("model.path")))
    return {str(path).rsplit("/", 1)[-1]: draw(parts[path], "variant") for path in looks(table)}


def _needs(study: "StudyData", column: str, values: int = 2) -> None:
    found = study.metrics[column].nunique() if column in study.metrics else 0
    if found < values:
        raise UserError(f"This needs {values} values of {column}, and the study has {found}.")


def _with_column(study: "StudyData", column: str) -> pd.DataFrame:
    """pass@1 before and after with a column of the configuration."""
    _needs(study, column)
    values = study.metrics.groupby("cell")[column].first()
    return study.change.assign(**{column: study.change["cell"].map(values)})
