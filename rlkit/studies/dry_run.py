"""What `--dry-run` says of a run and of a study: the runs, their cost, how far each is, and keys without an effect."""

import math
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from rlkit.config import RunConfig
from rlkit.params import flatten
from rlkit.results.run_state import kept_step, run_state
from rlkit.studies.file import inert_factors, inert_keys, inert_sentences
from rlkit.studies.plan import Plan
from rlkit.studies.status import console, duration, say


def run_plan(config: RunConfig, root: Path) -> str:
    """What a run would do: its folder, what is trained, how far it is, and the cost of the rest, from its own steps."""
    from rlkit.sizing.estimate import estimate, estimate_warm_start
    from rlkit.training.warm_cache import to_make

    folder, total = root / config.study / "runs" / config.id, config.trainer.total_training_steps
    step, cost, pace = kept_step(folder), estimate(config), run_state(folder).pace
    about = f"{cost.flops * (1 - step / total):.1e} FLOPs" if cost else "cost unknown"
    if cost and config.trainer.backend == "local":
        seconds, measured = cost.left(step, pace), " (measured)" if pace else ""
        about += f", about {duration(seconds)} here: {pace or cost.step:.2g} s per step{measured}"
    warm = to_make(config) if step < total else None
    if warm is not None and (made := estimate_warm_start(config)):
        about += f"\nbefore that a warm start of {config.model.warm_start.steps} steps: {made[0]:.1e} FLOPs, "
        about += f"about {duration(made[1])} here; it is kept in {warm.parent} for the runs that share it"
    standing = "all steps are done" if step >= total else f"continues at {step}/{total}" if step else "to do"
    batch = f"{config.data.train_batch_size} prompts, {config.rollout.n} responses each"
    head = f"{folder}: {config.model.path} by {config.algorithm.adv_estimator}, {total} steps of {batch}"
    cautions = inert_sentences(inert_keys(config, flatten(config.model_dump(exclude_unset=True))))
    return "\n".join([head, f"{standing}: {about}", *cautions])


def show_plan(plan: Plan, workers: int) -> None:
    """Print the runs of a study with their estimated cost, and what `workers` at a time need for all of it."""
    if not plan.to_do:
        return say(f"Study {plan.config.study}: all {len(plan.runs)} runs are finished.")
    table = Table("run", "held out", "FLOPs", "about", "status", title=f"Study {plan.config.study}")
    rows = [(f"warm start of {name}", "", cost, "made once") for name, cost in plan.warm_starts.items()]
    left = list(plan.warm_starts.values())
    for run in plan.runs:
        step, total = kept_step(run.folder), run.config.trainer.total_training_steps
        cost, status = (math.nan, math.nan), "done" if run.finished else "trained, without its notebook"
        if not run.trained:
            share, (flops, seconds) = 1 - step / total, plan.costs[run.name]
            cost, status = (share * flops, share * seconds), f"continues at {step}/{total}" if step else "to do"
            left.append(cost)
        rows.append((run.label, "yes" if run.held_out else "", cost, status))
    for name, held, (flops, seconds), status in rows:
        words = (f"{flops:.1e}", duration(seconds)) if math.isfinite(flops) else ("", "")
        table.add_row(escape(name), held, *words, status)
    console.print(table)
    flops, ends = sum(cost for cost, _ in left), [0.0] * workers
    for _, seconds in left:  # each on the worker that is free first
        ends[ends.index(min(ends))] += seconds
    words = f"{flops:.1e} FLOPs, about {duration(max(ends))} with {workers} at a time on an idle machine"
    if not math.isfinite(flops):
        words = "the cost is unknown where the model is not on this machine yet"
    elif not left:
        words = "trained, only their notebooks are missing"
    say(f"{len(plan.to_do)} of {len(plan.runs)} runs to do: {words}.")
    for caution in inert_sentences(inert_factors(plan.runs)):
        say(caution, style="yellow")
