"""The figures of a study: their captions, and what draws each from the study's data for a venue, by name in `FIGURES`.

Add yours there. A function raises a UserError where the study has no data for its figure."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlkit.errors import UserError
from rlkit.figures import laws, runs
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.labels_and_looks import LETTERED, WIDTHS, legend_below, looks, styled
from rlkit.measures import comparisons, fits
from rlkit.measures.fits import COMPUTE, PASSED, SHARE, UNIQUE, check_varied

if TYPE_CHECKING:
    from rlkit.figures.study import StudyData

TOKENS = "tokens/response"
COSTS = {"": TOKENS, "flops": COMPUTE, "seconds": "compute/seconds"}
SCORE, ENTROPY = ("critic/score/mean",), ("actor/entropy",)
TRAINING = (*SCORE, "actor/grad_norm", *ENTROPY, "response_length/mean")
LEAST = 3  # panels of the main figure


def sft_ratio(study: "StudyData", venue: str) -> Drawing:
    change = _with_column(study, SHARE).sort_values([SHARE, "when"])
    part = change["when"].map({"before": "after the supervised part", "after": "at the end"})
    return runs.against(change.assign(part=part), SHARE, "pass@1", by="part", venue=venue)


def main(study: "StudyData", venue: str) -> Drawing:
    """What the study found, at text width."""
    width, found = WIDTHS.get(f"{venue}-text", WIDTHS[venue]), dict[str, Drawing]()
    small: Any = {"axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7}
    small |= {"lines.markersize": 3, "lines.linewidth": 1}
    with styled(), matplotlib.rc_context(small):
        fig = Figure(figsize=(width, 0.62 * width), label=LETTERED)
        axes = list(fig.subplots(2, 3).flat)
        for shows, draw in PANELS.items():
            if len(found) == len(axes):
                break
            ax, letter = axes[len(found)], "abcdef"[len(found)]
            with suppress(UserError):  # before anything was drawn
                found[f"({letter}) {shows}."] = draw(study, venue, ax=ax)
                ax.set_title(f"({letter})", loc="left", fontweight="bold")
        if len(found) < LEAST:
            raise UserError(f"The main figure needs data for {LEAST} panels, and the study has {len(found)}.")
        for ax in axes[len(found) :]:
            ax.remove()
        styles = looks(study.metrics, "cell")
        if len(styles) > 1:
            legend_below(fig, [Line2D([], [], **style) for style in styles.values()], list(map(str, styles)))
    tables = [drawing.table.assign(panel=words[1]) for words, drawing in found.items()]
    told = {key: value for drawing in found.values() for key, value in drawing.sources.items()}
    return Drawing(fig, pd.concat(tables, ignore_index=True), told | sources(study.metrics), " ".join(found))


def _by_model(table: pd.DataFrame, draw: Callable[[pd.DataFrame, str], Drawing]) -> dict[str, Drawing]:
    """A drawing of the rows of each model by its name, the smallest first, and of the column to tell apart within; one
    of all where no model has variants of its own: a mean over sizes would be of none."""
    if "variant" not in table or table["variant"].nunique() < 2 or table["model.path"].nunique() < 2:
        return {"": draw(table, "cell")}
    made = {}
    for name, part in fits.models(table).items():
        several = part["variant"].nunique() < part["cell"].nunique()  # a variant is a size, say, with a grid
        made[name] = draw(part, "cell" if several else "variant")
    return made


def _with_column(study: "StudyData", column: str) -> pd.DataFrame:
    """pass@1 before and after with a column of the configuration."""
    check_varied(study.metrics, column)
    values = study.metrics.groupby("cell")[column].first()
    return study.change.assign(**{column: study.change["cell"].map(values)})


def _needed(study: "StudyData", venue: str, ax: Axes | None = None, x: str = TOKENS) -> Drawing:
    return runs.needed(comparisons.needed(study.metrics, x, levels=5), x, venue, ax)


class Entry(NamedTuple):
    """What a reader has to know to read a figure, and what draws it: of several drawings, each is by what distinguishes
    it, which is added to the file's name. Those of a panel take the axes to draw on, too."""

    caption: str
    draw: Callable[..., Drawing | dict[str, Drawing]]


FIGURES = {
    "before_after": Entry(
        "Held-out pass@1 before (hollow, thin) and after training (filled, thick), with 95 % intervals over problems.",
        lambda s, venue: runs.before_after(s.change, venue),
    ),
    "learning_curves": Entry(
        "Held-out pass@1 against the compute of training, its warm start included: thick the mean over seeds with its "
        "95 % interval over problems, thin the runs; grey, of several models, the best mean for the compute.",
        lambda s, venue, ax=None: runs.learning_curves(s.metrics, COMPUTE, PASSED, "cell", venue, s.evals, ax),
    ),
    "learning_curves_by_step": Entry(
        "Held-out pass@1 along training: thick the mean over seeds with its 95 % interval over problems, thin runs.",
        lambda s, venue, ax=None: runs.learning_curves(s.metrics, "step", PASSED, "cell", venue, s.evals, ax),
    ),
    "training": Entry(
        "Metrics of training: thick the mean over runs, smoothed over a twentieth of the steps; faint, where they are "
        "few, the runs.",
        lambda s, venue: _by_model(s.metrics, lambda df, by: runs.metric_panels(df, TRAINING, by, venue)),
    ),
    "domains": Entry(
        "pass@1 of each held-out domain and of each suite along training: thick the mean over seeds, thin the runs.",
        lambda s, venue: _by_model(s.metrics, lambda df, by: runs.domain_curves(df, by, venue)),
    ),
    "transfer": Entry(
        "Change of held-out pass@1 in each domain (columns) by each training (rows), with 95 % intervals.",
        lambda s, venue: _by_model(s.evals, lambda df, by: runs.transfer(df.assign(cell=df[by]), venue)),
    ),
    "differences": Entry(
        "Final held-out pass@1 less that of the baseline, paired by problem: thick the 95 % interval over problems, "
        "for these very runs; thin, where a cell has several seeds, that over seeds and problems.",
        lambda s, venue: runs.differences(comparisons.differences(s.evals), venue),
    ),
    "equal_compute": Entry(
        "Held-out pass@1 at the last evaluation within the FLOPs, a warm start's included, that every run of the model "
        "has spent, with 95 % intervals over problems. The update computes no sequence of zero advantage unless a "
        "critic, a KL or an entropy term needs it, so that algorithms with more of those get further.",
        lambda s, venue: runs.ranked(comparisons.at_compute(s.evals, s.metrics, COMPUTE), venue),
    ),
    "sample_efficiency": Entry(
        "Level of held-out pass@1, above its model's start, against what reaching it costs: the mean over the runs "
        "that do (hollow: not all of them); bars span those.",
        lambda s, venue: {
            name: _needed(s, venue, x=x) for name, x in COSTS.items() if (s.metrics["metric"] == x).any()
        },
    ),
    "scaling_law": Entry(
        "The law through the filled points, with a 95 % band: of a new run for a law of one column, of the curve for "
        "others. Hollow points were held out of the fit. On the grey ground the law is extrapolated: a star is what it "
        "predicts for a run that was held out, with its interval. A band ends where what is possible does.",
        lambda s, venue, ax=None: laws.law(s.fit, s.points, by="cell", venue=venue, ax=ax),
    ),
    "residuals": Entry(
        "Residuals of the law in its own space against what it predicts: a trend is what the law does not describe.",
        lambda s, venue: laws.residuals(s.fit, venue),
    ),
    "law_of_size_and_steps": Entry(
        "One law of size and steps, ln L = E0(N) - k(N) ln steps (arXiv 2509.25300), with 95 % bands.",
        lambda s, venue: laws.law(*fits.size_and_steps(s.metrics), venue=venue),
    ),
    "training_law": Entry(
        "The law of held-out pass@1 in the compute of training of each cell that is not held out, with 95 % bands of "
        "the curves.",
        lambda s, venue: laws.law(*fits.along(s.metrics, after=s.holdout_after), by="cell", venue=venue),
    ),
    "law_of_cells": Entry(
        "Held-out error of each cell as a power of training steps, with 95 % bands over seeds and problems.",
        lambda s, venue: laws.law(*fits.by_cell(s.metrics, s.evals), by="cell", venue=venue),
    ),
    "law_of_domains": Entry(
        "Held-out error of each domain as a power of training steps, of the first cell of the study's file, with 95 % "
        "bands over seeds and problems.",
        lambda s, venue: {
            name: laws.of_domains(*found, venue) for name, found in fits.by_domain(s.metrics, s.evals).items()
        },
    ),
    "law_of_success": Entry(
        "Success on held-out problems in the steps taken in the environment, logit success = a + b ln steps, with its "
        "95 % band.",
        lambda s, venue: laws.law(fits.environment_steps(s.metrics, s.evals), venue=venue),
    ),
    "data": Entry(
        "Held-out pass@1 at the end against unique training tasks, with 95 % intervals over problems.",
        lambda s, venue: runs.against(
            _with_column(s, UNIQUE).query("when == 'after'"), UNIQUE, "pass@1", "model.path", venue, log=True
        ),
    ),
    "law_of_data": Entry(
        "Held-out error at the end in unique training tasks, and of three sizes or more in size, with 95 % bands.",
        lambda s, venue: {
            name: laws.law(*one, by="cell", venue=venue) for name, one in fits.unique_tasks(s.metrics, s.evals).items()
        },
    ),
    "law_of_repeats": Entry(
        "Held-out error along training in the tasks shown, of which so many are unique, with 95 % bands; hollow points "
        "were held out of the fit.",
        lambda s, venue: {name: laws.law(*one, venue=venue) for name, one in fits.repeats(s.metrics).items()},
    ),
    "sft_ratio": Entry(
        "Held-out pass@1 after the supervised part (before RL) and at the end, against the share of tasks with worked "
        "answers, with 95 % intervals over problems.",
        sft_ratio,
    ),
    "law_of_shares": Entry(
        "Held-out error at the end in the share of tasks with worked answers, with the 95 % band of a new run.",
        lambda s, venue: laws.law(*fits.best_share(s.metrics, s.evals), by="cell", venue=venue),
    ),
    "frontier": Entry(
        "Held-out pass@1 of each split of equal budgets of rollouts.",
        lambda s, venue: runs.frontier(fits.at_budgets(s.evals, s.metrics), venue),
    ),
    "law_of_rollouts": Entry(
        "The best rollouts a prompt in a budget of rollouts, with its 95 % band.",
        lambda s, venue: laws.law(fits.rollouts_law(s.evals, s.metrics), venue=venue),
    ),
    "pass_at_k": Entry(
        "pass@k before (dashed, hollow) and after training (solid), with 95 % intervals over problems.",
        lambda s, venue, ax=None: runs.pass_at_k_ends(comparisons.pass_at_k_ends(s.evals), venue, ax),
    ),
    "law_of_coverage": Entry(
        "Coverage after training, -ln pass@k = a k^-b (arXiv 2407.21787), with 95 % bands over problems.",
        lambda s, venue: laws.law(*fits.coverage(s.evals), by="cell", venue=venue),
    ),
    "diversity": Entry(
        "Distinct responses to a problem, as a share of its samples, before (hollow) and after training (filled), with "
        "95 % intervals over problems.",
        lambda s, venue: runs.before_after(comparisons.diversity(s.evals), venue, "distinct"),
    ),
    "main": Entry("What the study found, at text width.", main),
}

PANELS = {
    "held-out pass@1 along training, with 95 % intervals over problems": FIGURES["learning_curves_by_step"].draw,
    "the same against compute": FIGURES["learning_curves"].draw,
    "the law with its 95 % prediction band; hollow and beyond: held out": FIGURES["scaling_law"].draw,
    "level reached against response tokens, hollow where not all runs reach it": _needed,
    "pass@k before (dashed) and after training": FIGURES["pass_at_k"].draw,
    "score of the training samples": lambda s, venue, ax: runs.metric_panels(s.metrics, SCORE, "cell", venue, ax=ax),
    "entropy of the policy": lambda s, venue, ax: runs.metric_panels(s.metrics, ENTROPY, "cell", venue, ax=ax),
}
"""What a panel of the main figure shows, in the order of letters; the first six that the study has data for."""
