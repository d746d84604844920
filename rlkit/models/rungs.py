"""The sizes of the ladder (rlkit.models.ladder), without torch."""

from dataclasses import dataclass

from rlkit.errors import UserError, did_you_mean

VOCABULARY = 262
"""Bytes, specials and role names of the ladder's tokenizer."""


@dataclass(frozen=True)
class Rung:
    """Layers, hidden size, MLP size and heads of one size."""

    layers: int
    hidden: int
    intermediate: int
    heads: int


LADDER = {
    "ladder-10k": Rung(1, 32, 64, 1),
    "ladder-30k": Rung(2, 32, 128, 1),
    "ladder-60k": Rung(3, 32, 160, 1),
    "ladder-100k": Rung(2, 64, 192, 2),
    "ladder-200k": Rung(3, 64, 256, 2),
    "ladder-300k": Rung(3, 96, 240, 3),
    "ladder-600k": Rung(4, 96, 384, 3),
    "ladder-1m": Rung(4, 128, 480, 4),
    "ladder-3m": Rung(5, 192, 768, 6),
    "ladder-10m": Rung(8, 320, 864, 10),
    "ladder-30m": Rung(10, 512, 1280, 8),
    "ladder-100m": Rung(14, 768, 2048, 12),
    "ladder-300m": Rung(24, 1024, 2688, 16),
}


def rung(name: str) -> Rung:
    """The shape of a size; an unknown one is a UserError that lists the sizes."""
    if name not in LADDER:
        raise UserError(
            f"model.path is {name!r}: no such ladder size.{did_you_mean(name, LADDER)} Sizes: {', '.join(LADDER)}."
        )
    return LADDER[name]
