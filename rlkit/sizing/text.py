"""`rlkit doctor` for people."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlkit.sizing.devices import GIB
from rlkit.sizing.run import sampler_of

if TYPE_CHECKING:
    from rich.table import Table

    from rlkit.sizing.fit import Fit

WORTH = 0.95  # of a step's seconds: what a larger micro-batch must save to be told
SHOWN = 0.001  # parts below this share of the peak are not shown


def machine_table() -> "Table":
    """What this machine has, what follows, and how to mend what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from rlkit.sizing.machine import findings

    table = Table("what", "found", "what follows", "to mend", box=SIMPLE_HEAD, pad_edge=False)
    for row in findings():
        table.add_row(row.what, row.found, row.follows, row.mend, style="yellow" if row.mend else "")
    return table


def summary(fit: "Fit") -> str:
    """Memory by part, seconds by phase, and a sentence that says whether it fits or what would."""
    c, m = fit.config, fit.memory
    kind = f"LoRA rank {c.model.lora_rank}" if c.model.lora_rank else "all weights"
    where = "this machine" if fit.name == "here" else fit.name
    head = (
        f"{c.model.path}: {fit.shape.parameters / 1e9:.3g} B parameters, {kind}, {c.model.dtype}, on {where} "
        f"({fit.device.memory_gb * 1e9 / GIB:.0f} GiB)\n"
        f"{c.data.train_batch_size} prompts of {fit.lengths.prompt} tokens × {c.rollout.n} responses of "
        f"{fit.lengths.response}; sampler: {sampler_of(c, fit.shape, fit.device, fit.on_gpu)[0]}"
    )
    lines = [head, "", f"{'memory':<28}{'GiB':>9}"]
    for title, parts in (("", m.held), ("rollout: ", m.rollout), ("update: ", m.update)):
        lines += [
            f"{title + name:<28}{size / GIB:>9.2f}" for name, size in parts.items() if size > SHOWN * m.peak
        ]
    lines += [f"{'peak of the rollout':<28}{m.rollout_bytes / GIB:>9.2f}"]
    lines += [f"{'peak of the update':<28}{m.update_bytes / GIB:>9.2f}", ""]
    lines += _seconds(fit.step.phases, fit.step.total)
    if fit.launch is not None:
        lines += [f"launching a kernel takes {fit.launch * 1e6:.0f} µs here (measured)"]
    return "\n".join([*lines, "", verdict(fit)])


def _seconds(phases: Mapping[str, float], total: float) -> list[str]:
    rows = [f"{name:<28}{value:>9.3g}" for name, value in phases.items()]
    return [f"{'step':<28}{'seconds':>9}", *rows, f"{'all':<28}{total:>9.3g}"]


def verdict(fit: "Fit") -> str:
    """One sentence: it fits, with how large a micro-batch; or it does not, and what would."""
    peak, room = fit.memory.peak / GIB, fit.room / GIB
    tokens = fit.config.actor.tokens_a_pass
    if fit.fits:
        largest = max(fit.largest_micro_batch or 0, tokens)
        more = f"could be {largest:,}" if largest > tokens else "is the largest that fits"
        if (faster := fit.step_of(largest).total) < WORTH * fit.step.total:
            more += f", with which a step would take {faster:.3g} s instead of {fit.step.total:.3g}"
        return f"Fits: {peak:.1f} of {room:.1f} GiB that can be filled. actor.micro_batch_tokens {tokens:,} {more}."
    start = f"Does not fit: {peak:.1f} GiB are needed and {room:.1f} can be filled."
    if fit.changes is None:
        return (
            f"{start} Nor would it with LoRA, bfloat16, gradient checkpointing, the smallest micro-batch and fewer "
            "sequences sampled at a time: take a larger device, shorter responses, or trainer.backend=verl on several "
            "GPUs (rlkit plan)."
        )
    words = " ".join(f"{key}={str(value).lower()}" for key, value in fit.changes.items())
    return f"{start} What would fit: {words}"
