"""Several runs of a study on one GPU, as many as their memory allows.

A run asks for what its cell's finished runs were measured to need, or for what is predicted. It goes to the card with
the most room, is told its share (RLKIT_GPU_MEMORY, in bytes), and torch refuses it more: an update that is too large
then goes on in halves instead of ending a neighbour. Processes share a card in time slices; where NVIDIA's MPS runs,
which is the user's choice, their kernels run side by side.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.provenance import usable_cores
from rlkit.results.store import read_json
from rlkit.sizing.devices import MIB, Device, Gpu, gpus
from rlkit.sizing.memory import CONTEXT, USABLE, Plan, memory, total
from rlkit.studies.executors import LocalJob, Work, visible_gpus

GPU_SHARE = "RLKIT_GPU_MEMORY"  # read by rlkit.models.device
MARGIN = 1.15
"""What is asked for beside what is predicted or was measured."""


@dataclass
class Card:
    """A GPU: its name for CUDA_VISIBLE_DEVICES, the bytes that runs can fill, and what each job on it was granted."""

    name: str
    room: float
    granted: dict[LocalJob, float] = field(default_factory=dict)

    @property
    def free(self) -> float:
        """Bytes that no running job was granted."""
        return self.room - sum(need for job, need in self.granted.items() if not job.done())


class PackedExecutor:
    """Processes of this machine, several on a GPU.

    Args:
        cards: the GPUs; default: those that this process may use.
    """

    def __init__(self, runs: int, cards: Sequence[Card] | None = None) -> None:
        self.cards = list(cards) if cards is not None else usable_cards(visible_gpus(), gpus())
        self.workers = max(1, min(usable_cores(), runs))
        self.threads = max(1, usable_cores() // self.workers)

    def gpu_memory(self, config: RunConfig, like: Iterable[Path]) -> float:
        """Bytes that a run needs: the most that finished runs of its cell (their folders) were measured to need, or
        what is predicted; infinity where neither is known."""
        infos = [read_json(folder / "run.json") for folder in like]
        measured = [info["summary"].get("gpu_memory") for info in infos if info.get("status") == "finished"]
        if known := [size for size in measured if size]:
            return max(known)
        largest = Device(memory_gb=max(card.room for card in self.cards) / 1e9)
        try:
            return total(memory(Plan(config, largest)))
        except UserError:
            return math.inf

    def start(self, work: Work) -> LocalJob | None:
        """Start it on the card with the most room; None where it has to wait. One that no empty card would hold is
        given a card of its own: it may need less than was predicted."""
        need = work.gpu_memory * MARGIN + CONTEXT
        card = max(self.cards, key=lambda c: c.free)
        if need > card.free:
            if card.free < card.room:
                return None
            need = card.room
        device = {"CUDA_VISIBLE_DEVICES": card.name, GPU_SHARE: str(int(need - CONTEXT))}
        job = LocalJob(work, {**work.limits(self.threads), **device})
        card.granted = {other: size for other, size in card.granted.items() if not other.done()} | {job: need}
        return job


def usable_cards(names: Sequence[str], found: Sequence[Gpu]) -> list[Card]:
    """The cards that `names` (of CUDA_VISIBLE_DEVICES) choose among those found, with what is free on them.

    Raises:
        UserError: a name is no index, so that its memory is not known.
    """
    cards = []
    for name in names:
        if not name.strip().isdigit() or int(name) >= len(found):
            raise UserError(
                f"CUDA_VISIBLE_DEVICES names {name!r}: --workers auto needs indices of nvidia-smi; name a number of "
                "workers instead."
            )
        gpu = found[int(name)]
        cards.append(Card(name.strip(), USABLE * (gpu.total - gpu.used) * MIB))
    return cards
