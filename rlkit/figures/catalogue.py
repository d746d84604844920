"""The catalogue of a study's figures: what each shows, and how it is drawn. Add yours to `FIGURES`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rlkit.figures import contrasts, efficiency, laws, runs, varied
from rlkit.figures.drawing import Drawing
from rlkit.figures.main import main
from rlkit.measures import comparisons

if TYPE_CHECKING:
    from rlkit.figures.study import StudyData

COMPUTE = "compute/total_flops"
TRAINING = ("critic/score/mean", "actor/grad_norm", "actor/entropy", "response_length/mean")


class Figure(NamedTuple):
    """A figure of a study.

    Attributes:
        caption: what a reader has to know to read it.
        draw: from a study and a venue; several by what distinguishes them, which is added to the file's name.
            Raises a UserError where the study has no data for it.
    """

    caption: str
    draw: Callable[["StudyData", str], Drawing | dict[str, Drawing]]


def _curves(study: "StudyData", venue: str, x: str) -> Drawing:
    return runs.learning_curves(study.metrics, x, by="cell", venue=venue, evals=study.evals)


def _law(study: "StudyData", venue: str) -> Drawing:
    return laws.law(study.fit, study.points, by="cell", venue=venue)


FIGURES: dict[str, Figure] = {
    "main": Figure("What the study found, at text width.", main),
    "before_after": Figure(
        "Held-out pass@1 before (hollow) and after training (filled), with 95 % intervals over problems.",
        lambda s, venue: runs.before_after(s.change, venue),
    ),
    "learning_curves": Figure(
        "Held-out pass@1 against the compute of reinforcement learning (a warm start not counted): "
        "thick the mean over seeds with its 95 % interval over "
        "problems, thin the runs.",
        lambda s, venue: _curves(s, venue, COMPUTE),
    ),
    "learning_curves_by_step": Figure(
        "Held-out pass@1 along training: thick the mean over seeds with its 95 % interval over problems, thin runs.",
        lambda s, venue: _curves(s, venue, "step"),
    ),
    "training": Figure(
        "Metrics of training: thick the mean over runs, smoothed over a twentieth of the steps; faint, where they are "
        "few, the runs.",
        lambda s, venue: varied.training(s, TRAINING, venue),
    ),
    "domains": Figure(
        "pass@1 of each held-out domain and of each suite along training: thick the mean over seeds, thin the runs.",
        varied.domains,
    ),
    "transfer": Figure(
        "Change of held-out pass@1 in each domain (columns) by each training (rows), with 95 % intervals.",
        varied.transfer,
    ),
    "differences": Figure(
        "Final held-out pass@1 less that of the baseline, paired by problem: thick the 95 % interval "
        "over problems, for these very runs; thin, where a cell has several seeds, that over seeds and problems.",
        lambda s, venue: contrasts.differences(comparisons.differences(s.evals), venue),
    ),
    "equal_compute": Figure(
        "Held-out pass@1 at the last evaluation within the FLOPs of training (no warm start) that every run of "
        "the model has spent, with 95 % intervals over problems. The update computes no sequence of zero advantage "
        "unless a critic, a KL or an entropy term needs it, so that algorithms with more of those get further.",
        lambda s, venue: contrasts.ranked(comparisons.at_compute(s.evals, s.metrics, COMPUTE), venue=venue),
    ),
    "frontier": Figure(
        "Compute at which each size first reaches a level of held-out pass@1: a grey line joins the sizes that rise to "
        "one level, its lowest point is the best size for it, and each size has its model's colour and marker. Bars "
        "span the runs.",
        lambda s, venue: efficiency.frontier(s.metrics, COMPUTE, venue=venue),
    ),
    "collapse": Figure(
        "Learning curves as shares of their own compute and of their own gain: those of one shape fall on one curve.",
        lambda s, venue: efficiency.collapse(s.metrics, COMPUTE, venue=venue),
    ),
    "sample_efficiency": Figure(
        "Response tokens until held-out pass@1 reaches a level above its model's start, the mean over the runs that "
        "reach it (hollow: not all of them do); bars span those.",
        varied.sample_efficiency,
    ),
    "scaling_law": Figure(
        "The law through the filled points, with a 95 % band: of a new run for a law of one column, of the curve for "
        "others. Hollow points were held out of the fit. On the grey ground the law is extrapolated: a star is what it "
        "predicts for a run that was held out, with its interval. A band ends where what is possible does.",
        _law,
    ),
    "residuals": Figure(
        "Residuals of the law against what it predicts: a trend is what it does not describe.",
        lambda s, venue: laws.residuals(s.fit, venue),
    ),
    "law_parameters": Figure(
        "Estimates of the law's parameters with 95 % intervals, an arrow where an end is beyond the panel.",
        lambda s, venue: laws.intervals({s.fit.law.name.replace("_", " "): s.fit}, venue=venue),
    ),
    "forms": Figure(
        "Rival laws fitted to the filled points, with 95 % bands of the curves, outside of which new runs may lie; the "
        "tail error is the root of their mean squared error on the hollow points, which they did not see.",
        varied.forms,
    ),
    "law_of_size_and_steps": Figure(
        "One law of size and steps, ln L = E0(N) - k(N) ln steps (arXiv 2509.25300), with 95 % bands.",
        varied.law_of_size_and_steps,
    ),
    "training_law": Figure(
        "The law of held-out pass@1 in the compute of training of each cell that is not held out: estimates with 95 % "
        "intervals, an arrow where an end is beyond the panel.",
        varied.training_law,
    ),
    "data": Figure(
        "Held-out pass@1 at the end against unique training tasks, with 95 % intervals over problems.",
        varied.data,
    ),
    "marginal_returns": Figure(
        "What a doubling of unique training tasks adds to held-out pass@1, with 95 % intervals over problems.",
        varied.marginal_returns,
    ),
    "law_of_data": Figure(
        "Held-out error at the end as a power of unique training tasks, with the 95 % band of a new run.",
        varied.law_of_data,
    ),
    "sft_ratio": Figure(
        "Held-out pass@1 after the supervised part (before RL) and at the end, against the share of tasks with worked "
        "answers, with 95 % intervals over problems.",
        varied.sft_ratio,
    ),
    "pass_at_k": Figure(
        "pass@k before (dashed, hollow) and after training (solid), with 95 % intervals over problems.",
        lambda s, venue: contrasts.pass_at_k_ends(comparisons.pass_at_k_ends(s.evals), venue=venue),
    ),
    "diversity": Figure(
        "Distinct responses to a problem, as a share of its samples, before (hollow) and after training (filled), with "
        "95 % intervals over problems.",
        lambda s, venue: runs.before_after(comparisons.diversity(s.evals), venue, "distinct"),
    ),
}
"""Every figure of a study by its file's name; one that a study has no data for is left out with the reason."""
