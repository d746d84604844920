"""The figures of a study: their captions, and what draws each from the study's data for a venue, by name in `FIGURES`.

Add yours there. A function raises a UserError where the study has no data for its figure."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlkit.errors import UserError
from rlkit.figures import laws, runs
from rlkit.figures.drawing import Drawing, sources
from rlkit.figures.style import LETTERED, WIDTHS, legend_below, looks, styled
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


def law_of_size_and_steps(study: "StudyData", venue: str) -> Drawing:
    _needs(study, SIZE, FOR_LAW)
    curves = curve_table(study.metrics, "step", PASSED, "cell")
    facts = study.points[["run", SIZE, "held_out"]]
    curves = curves[curves["step"] > 0].merge(facts, on="run").assign(error=lambda t: 1 - t[PASSED])
    if curves["step"].nunique() < FOR_LAW:
        raise UserError(f"The study was evaluated at fewer than {FOR_LAW} steps after the start.")
    x = {"N": SIZE, "X": "step"}
    found = fit(curves, "tan", x=x, y="error", loss="ls", cluster="run", bootstrap=200)
    return laws.law(found, curves, venue=venue)


def law_of_data(study: "StudyData", venue: str) -> dict[str, Drawing]:
    _needs(study, UNIQUE, FOR_LAW)
    points, found = study.points, {}
    if points.groupby(["model.path", UNIQUE])["cell"].nunique().max() > 1:
        raise UserError(f"The study varies more than model.path and {UNIQUE}: this law would not know of it.")
    most = points[~points["held_out"].astype(bool)].groupby("model.path")[UNIQUE].nunique()
    for name in looks(points):  # a figure a model: one line through two sizes would be of neither
        if most.get(name, 0) >= FOR_LAW:
            part = points[points["model.path"] == name]
            law = fit(part, "power", x=UNIQUE, y="error", loss="ls", bootstrap=500, resample="residual")
            short = str(name).rsplit("/", 1)[-1] if points["model.path"].nunique() > 1 else ""
            found[short] = laws.law(law, part, by="cell", venue=venue)
    if not found:
        raise UserError(f"This needs {FOR_LAW} values of {UNIQUE} of a model to fit, and has {most.max()}.")
    return found


def sft_ratio(study: "StudyData", venue: str) -> Drawing:
    change = _with_column(study, SHARE).sort_values([SHARE, "when"])
    part = change["when"].map({"before": "after the supervised part", "after": "at the end"})
    return runs.against(change.assign(part=part), SHARE, "pass@1", by="part", venue=venue)


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
        told = f"{FOR_TRAINING_LAW} evaluations after the start, and a run has {found}"
        raise UserError(f"This needs {told}: set a lower trainer.test_freq.")
    made, parts = {}, dict(list(curves.groupby("cell")))
    for cell in (cell for cell in in_order(seen, "cell")["cell"] if cell in parts):
        several = parts[cell]["run"].nunique() > 1  # of one design, of which no resample loses anything
        together: Any = {"cluster": "run", "resample": "case"} if several else {"block": "step"}
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


def _curve(x: str) -> Callable[..., Drawing]:
    return lambda s, venue, ax=None: runs.learning_curves(s.metrics, x, PASSED, "cell", venue, s.evals, ax)


def _metric(name: str) -> Callable[..., Drawing]:
    return lambda s, venue, ax: runs.metric_panels(s.metrics, [name], "cell", venue, ax=ax)


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
        _curve(COMPUTE),
    ),
    "learning_curves_by_step": Entry(
        "Held-out pass@1 along training: thick the mean over seeds with its 95 % interval over problems, thin runs.",
        _curve("step"),
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
        "Response tokens until held-out pass@1 reaches a level above its model's start, the mean over the runs that "
        "reach it (hollow: not all of them do); bars span those.",
        lambda s, venue, ax=None: runs.against(
            learning.needed(s.metrics, TOKENS, levels=5), "level", TOKENS, "cell", venue, ax=ax
        ),
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
        law_of_size_and_steps,
    ),
    "training_law": Entry(
        "The law of held-out pass@1 in the compute of training of each cell that is not held out, with 95 % bands of "
        "the curves.",
        lambda s, venue: laws.law(*along(s), by="cell", venue=venue),
    ),
    "data": Entry(
        "Held-out pass@1 at the end against unique training tasks, with 95 % intervals over problems.",
        lambda s, venue: runs.against(
            _with_column(s, UNIQUE).query("when == 'after'"), UNIQUE, "pass@1", "model.path", venue, log=True
        ),
    ),
    "law_of_data": Entry(
        "Held-out error at the end as a power of unique training tasks, with the 95 % band of a new run.",
        law_of_data,
    ),
    "sft_ratio": Entry(
        "Held-out pass@1 after the supervised part (before RL) and at the end, against the share of tasks with worked "
        "answers, with 95 % intervals over problems.",
        sft_ratio,
    ),
    "pass_at_k": Entry(
        "pass@k before (dashed, hollow) and after training (solid), with 95 % intervals over problems.",
        lambda s, venue, ax=None: runs.pass_at_k_ends(comparisons.pass_at_k_ends(s.evals), venue, ax),
    ),
    "diversity": Entry(
        "Distinct responses to a problem, as a share of its samples, before (hollow) and after training (filled), with "
        "95 % intervals over problems.",
        lambda s, venue: runs.before_after(comparisons.diversity(s.evals), venue, "distinct"),
    ),
    "main": Entry("What the study found, at text width.", main),
}

PANELS = {
    "held-out pass@1 along training, with 95 % intervals over problems": _curve("step"),
    "the same against compute": _curve(COMPUTE),
    "the law with its 95 % prediction band; hollow and beyond: held out": FIGURES["scaling_law"].draw,
    "response tokens to reach a level, hollow where not all runs do": FIGURES["sample_efficiency"].draw,
    "pass@k before (dashed) and after training": FIGURES["pass_at_k"].draw,
    "score of the training samples": _metric("critic/score/mean"),
    "entropy of the policy": _metric("actor/entropy"),
}
"""What a panel of the main figure shows, in the order of letters; the first six that the study has data for."""
