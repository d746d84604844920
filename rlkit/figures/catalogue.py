"""The figures of a study: each a function of the study's data and a venue, by its name, whose docstring is the caption.

Add yours with `@figure`. A function raises a UserError where the study has no data for its figure.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.figures import contrasts, laws, runs
from rlkit.figures.axes import LETTERED, legend_below
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.theme import WIDTHS, looks, styled
from rlkit.laws import LawFit, fit
from rlkit.measures import comparisons, learning, summary
from rlkit.measures.tables import curve_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rlkit.figures.study import StudyData

SIZE, UNIQUE, SHARE = "parameters_non_embedding", "data.train_max_samples", "data.sft_ratio"
COMPUTE, PASSED, TOKENS = "compute/total_flops", "eval/pass@1", "tokens/response"
TRAINING = ("critic/score/mean", "actor/grad_norm", "actor/entropy", "response_length/mean")
FOR_TRAINING_LAW = 5  # evaluations after the start, for the four parameters of a sigmoid
FOR_LAW = 3  # values of its column that a law of one needs at least
LEAST, LETTERS = 3, "abcdef"  # panels of the main figure
SMALL: Any = {"axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "lines.markersize": 3,
              "lines.linewidth": 1}  # of its panels  # fmt: skip

Draw = Callable[["StudyData", str], Drawing | dict[str, Drawing]]
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
def learning_curves(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 against the compute of reinforcement learning (a warm start not counted): thick the mean over
    seeds with its 95 % interval over problems, thin the runs."""
    return runs.learning_curves(study.metrics, COMPUTE, by="cell", venue=venue, evals=study.evals)


@figure
def learning_curves_by_step(study: "StudyData", venue: str) -> Drawing:
    """Held-out pass@1 along training: thick the mean over seeds with its 95 % interval over problems, thin runs."""
    return runs.learning_curves(study.metrics, "step", by="cell", venue=venue, evals=study.evals)


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
def sample_efficiency(study: "StudyData", venue: str) -> Drawing:
    """Response tokens until held-out pass@1 reaches a level above its model's start, the mean over the runs that reach
    it (hollow: not all of them do); bars span those."""
    need = learning.needed(study.metrics, TOKENS, levels=5)
    return contrasts.against(need, "level", TOKENS, by="cell", venue=venue)


@figure
def scaling_law(study: "StudyData", venue: str) -> Drawing:
    """The law through the filled points, with a 95 % band: of a new run for a law of one column, of the curve for
    others. Hollow points were held out of the fit. On the grey ground the law is extrapolated: a star is what it
    predicts for a run that was held out, with its interval. A band ends where what is possible does."""
    return laws.law(study.fit, study.points, by="cell", venue=venue)


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
    return law_along(study, along(study), venue)


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
def pass_at_k(study: "StudyData", venue: str) -> Drawing:
    """pass@k before (dashed, hollow) and after training (solid), with 95 % intervals over problems."""
    return contrasts.pass_at_k_ends(comparisons.pass_at_k_ends(study.evals), venue)


@figure
def diversity(study: "StudyData", venue: str) -> Drawing:
    """Distinct responses to a problem, as a share of its samples, before (hollow) and after training (filled), with
    95 % intervals over problems."""
    return contrasts.before_after(comparisons.diversity(study.evals), venue, "distinct")


def along(study: "StudyData", law: str = "sigmoid", compute: str = COMPUTE) -> dict[str, LawFit]:
    """A law along training, of pass@1 after the start against compute, for each cell that is not held out, without the
    evaluations that `holdout_after` holds out. Runs are resampled whole, and the noise of a cell of one run is
    correlated in time. Raises UserError where a run has too few evaluations to fit."""
    curves = _along(study, compute)
    if (found := curves[~curves["held_out"]].groupby("run").size().min()) < FOR_TRAINING_LAW:
        raise UserError(
            f"This needs {FOR_TRAINING_LAW} evaluations after the start, and a run has {found}: set a lower "
            "trainer.test_freq."
        )
    made, parts = {}, dict(list(curves.groupby("cell")))
    for cell in (cell for cell in looks(study.metrics, "cell") if cell in parts):
        together: Any = {"cluster": "run"} if parts[cell]["run"].nunique() > 1 else {"block": "step"}
        made[cell] = fit(parts[cell], law, x=compute, y=PASSED, bootstrap=500, **together)
    return made


def _along(study: "StudyData", compute: str) -> pd.DataFrame:
    """pass@1 after the start against compute, a row a run and evaluation, of the cells that are not held out."""
    seen = study.metrics[~study.metrics["held_out"].astype(bool)]
    curves = curve_table(seen, compute, PASSED, "cell").query("step > 0")
    return curves.assign(held_out=curves["step"] > (study.holdout_after or np.inf))


def law_along(study: "StudyData", found: dict[str, LawFit], venue: str) -> Drawing:
    """The laws that `along` fitted, through the evaluations of their cells; held-out ones are hollow."""
    first = next(iter(found.values()))
    curves = _along(study, first.table.names[first.law.columns[0]])
    drawing = laws.law(found, curves, by="cell", venue=venue)
    drawn = study.metrics[study.metrics["cell"].isin(list(found))]
    return replace(drawing, sources=sources(drawn) | drawing.sources, caption=f"The law: {first.law.source}.")


def told(study: "StudyData", found: dict[str, LawFit]) -> pd.DataFrame:
    """What the laws of `along` foretell of each cell's last evaluation, beside what was observed, as
    `rlkit.measures.summary.held_out_error` has it; empty where the study holds no evaluation out."""
    first = next(iter(found.values()))
    held = _along(study, first.table.names[first.law.columns[0]]).query("held_out")
    last = held[held["step"] == held.groupby("run")["step"].transform("max")]
    cells = {str(cell): part for cell, part in last.groupby("cell")}
    parts = [summary.held_out_error(found[cell], part) for cell, part in cells.items() if cell in found]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.assign(**{end: table[end].clip(0, 1) for end in ("low", "high") if end in table})


def _curves(x: str, metric: str = PASSED) -> "Callable[[StudyData, Axes], Drawing]":
    return lambda s, ax: runs.learning_curves(s.metrics, x, metric, by="cell", evals=s.evals, ax=ax)


def _law(study: "StudyData", ax: "Axes") -> Drawing:
    if len(study.fit.law.columns) > 1:
        raise UserError("A law of several columns has a figure of its own.")
    return laws.law(study.fit, study.points, by="cell", ax=ax)


PANELS: "dict[str, Callable[[StudyData, Axes], Drawing]]" = {
    "held-out pass@1 along training, with 95 % intervals over problems": _curves("step"),
    "the same against compute": _curves(COMPUTE),
    "the law with its 95 % prediction band; hollow and beyond: held out": _law,
    "response tokens to reach a level, hollow where not all runs do": lambda s, ax: contrasts.against(
        learning.needed(s.metrics, TOKENS, levels=5), "level", TOKENS, by="cell", ax=ax
    ),
    "pass@k before (dashed) and after training": lambda s, ax: contrasts.pass_at_k_ends(
        comparisons.pass_at_k_ends(s.evals), ax=ax
    ),
    "score of the training samples": _curves("step", "critic/score/mean"),
    "entropy of the policy": _curves("step", "actor/entropy"),
}
"""What a panel of the main figure shows, in the order of letters; the first six that the study has data for."""


@figure
def main(study: "StudyData", venue: str) -> Drawing:
    """What the study found, at text width."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width = WIDTHS.get(f"{venue}-text", WIDTHS[venue])
    words, tables, found = [], [], {}
    with styled(), matplotlib.rc_context(SMALL):
        fig = Figure(figsize=(width, 0.62 * width), label=LETTERED)
        axes = list(fig.subplots(2, 3).flat)
        for shows, draw in PANELS.items():
            if len(words) < len(axes):
                ax, letter = axes[len(words)], LETTERS[len(words)]
                try:
                    drawing = draw(study, ax)
                except UserError:
                    ax.clear()
                    continue
                ax.set_title(f"({letter})", loc="left", fontweight="bold")
                words.append(f"({letter}) {shows}.")
                tables.append(drawing.table.assign(panel=letter))
                found |= drawing.sources
        if len(words) < LEAST:
            raise UserError(f"The main figure needs data for {LEAST} panels, and the study has {len(words)}.")
        for ax in axes[len(words) :]:
            ax.remove()
        styles = looks(study.metrics, "cell")
        if len(styles) > 1:
            legend_below(fig, [Line2D([], [], **style) for style in styles.values()], list(map(str, styles)))
    table = pd.concat(tables, ignore_index=True)
    return Drawing(fig, table, found | sources(study.metrics), " ".join(words))


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
    table = study.change
    facts = study.metrics.groupby("cell", as_index=False)[[column, "model.path"]].first()
    merged = table.merge(facts[[c for c in facts if c == "cell" or c not in table]], on="cell")
    merged.attrs = table.attrs
    return merged
