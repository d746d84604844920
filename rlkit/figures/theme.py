"""One look for all figures: widths of venues, fonts, labels, and a colour, marker and line for each model."""

import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib.style
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.ticker import EngFormatter

from rlkit.errors import UserError, did_you_mean
from rlkit.measures.tables import in_order

STYLE = Path(__file__).with_name("paper.mplstyle")

WIDTHS = {
    "neurips": 5.5, "iclr": 5.5, "colm": 5.5, "jmlr": 6.0, "tmlr": 6.5,
    "icml": 3.25, "icml-text": 6.75, "acl": 3.03, "acl-text": 6.3, "aaai": 3.3, "aaai-text": 7.0,
    "cvpr": 3.25, "cvpr-text": 6.875,
}  # fmt: skip
"""Inches of the text width, or of a column where the venue prints two (`-text` spans both): the style files of 2025."""

LABELS = {
    "step": "training steps",
    "compute/total_flops": "training FLOPs, all phases",
    "tokens/response": "response tokens",
    "level": "held-out pass@1 to reach",
    "pass@1": "held-out pass@1",
    "data.train_max_samples": "unique training tasks",
    "data.sft_ratio": "share with worked answers",
    "distinct": "share of distinct responses",
    "group/zero_variance": "groups of equal rewards",
    "actor/kl_loss": "KL, nats a token",
    "compute/train_6nt_flops": "training FLOPs, 6NT",
    "parameters_non_embedding": "non-embedding parameters",
    "eval/pass@1": "held-out pass@1",
    "error": "held-out error, 1\N{NO-BREAK SPACE}−\N{NO-BREAK SPACE}pass@1",
    "critic/score/mean": "training score",
    "response_length/mean": "response length, tokens",
    "actor/grad_norm": "gradient norm",
    "actor/entropy": "entropy, nats a token",
}

PALETTE = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#56b4e9", "#ca9161", "#949494")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))

RAMPS = (
    (1e4, 3e4, 5e4, 6e4, 1e5, 1.5e5, 2e5, 3e5, 6e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8),
    (1.35e8, 3.6e8, 5e8, 6e8, 1.5e9, 1.7e9, 3e9, 4e9, 7e9, 8e9, 1.4e10, 3.2e10, 7.2e10),
)
"""Nominal sizes. Small models and large ones are rarely drawn together, so each range has a ramp of colours."""
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}


def theme() -> None:
    """Use the look of these figures for everything that this process draws with matplotlib."""
    matplotlib.style.use(STYLE)


def styled() -> AbstractContextManager[None]:
    """The look of these figures inside a `with` block only."""
    return matplotlib.style.context(STYLE)


def looks(df: pd.DataFrame, by: str = "model.path") -> dict[Any, dict[str, Any]]:
    """`color`, `marker` and `linestyle` of each value of `by` in the table, smallest model first.

    The colour of a model with a nominal size is that size's step on a ramp from light (small) to dark (large), the same
    in every figure of every study, and its line is solid. Where a study has variants, the colour of a cell is its
    variant's, the first of the study's file first, and marker and line are those of its size or of what else the grid
    varies. Other values take the looks in their order (by size, then by value). In grey, marker and line tell apart
    what colour does not.
    """
    pairs = in_order(df, by)
    names, models = list(pairs[by]), list(pairs["model.path"]) if "model.path" in pairs else []
    if "variant_place" in pairs and pairs["variant"].nunique() > 1:
        styles = _of_variants(pairs, by)
    elif by == "parameters_non_embedding":
        styles = _of_sizes(names)
    elif len(set(models)) == len(names):
        styles = _of_models(models)
    else:
        styles = list(map(look, range(len(names))))
    present = set(df[by])
    return {name: style for name, style in zip(names, styles, strict=True) if name in present}


def _of_models(models: Sequence[Any]) -> list[dict[str, Any]]:
    """The looks of models: steps of the ramp where all names have a size, else by their order."""
    names = [str(model).rsplit("/", 1)[-1].lower() for model in models]
    found = [re.search(r"(\d+(?:\.\d+)?)([kmb])(?![a-z0-9])", name) for name in names]
    sizes = [float(size[1]) * UNITS[size[2]] for size in found if size]
    return _of_sizes(sizes) if len(sizes) == len(models) else list(map(look, range(len(models))))


def _of_sizes(sizes: Sequence[float]) -> list[dict[str, Any]]:
    """The looks of numbers of parameters, the nearest step of their range's ramp each; of two models of one step, the
    second takes the next marker."""
    steps = [(i / (len(ramp) - 1), size) for ramp in RAMPS for i, size in enumerate(ramp)]
    places, found = [], []
    for size in sizes:
        place = min(range(len(steps)), key=lambda i: abs(math.log(steps[i][1] / max(size, 1))))
        # Its palest fifth fades on white paper.
        colour = to_hex(matplotlib.colormaps["plasma"](0.78 * (1 - steps[place][0])))
        marker = MARKERS[(place + places.count(place)) % len(MARKERS)]
        found.append({"color": colour, "marker": marker, "linestyle": "-"})
        places.append(place)
    return found


def _of_variants(pairs: pd.DataFrame, by: str) -> list[dict[str, Any]]:
    """The colour of each row's variant, with the marker and line of what it has beside that."""
    named = zip(pairs[by].astype(str), pairs["variant"].astype(str), strict=True)
    beside = [name.removeprefix(variant) for name, variant in named]
    colours = [look(int(place)) for place in pairs["variant_place"]]
    if len(set(beside)) == 1:
        return colours
    models = dict(zip(beside, pairs["model.path"], strict=True))
    unique = len(set(models.values())) == len(models)
    told = _of_models(list(models.values())) if unique else map(look, range(len(models)))
    styles = dict(zip(models, told, strict=True))
    return [styles[name] | {"color": one["color"]} for name, one in zip(beside, colours, strict=True)]


def look(place: int) -> dict[str, Any]:
    """The look of a place in the order: colour, marker and line have cycles of different lengths."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }


def width_of(venue: str) -> float:
    """Inches of a venue's text or column. Raises UserError for an unknown one."""
    if venue not in WIDTHS:
        raise UserError(f"venue is {venue!r}.{did_you_mean(venue, WIDTHS)} Use one of {', '.join(WIDTHS)}.")
    return WIDTHS[venue]


def domain_name(data_source: str) -> str:
    """A data_source in words: `simulation__string_trace` is "simulation: string trace"."""
    return data_source.replace("__", ": ", 1).replace("_", " ")


def short(value: float) -> str:
    """A number for a legend: 107k, 1.5M, 0.0003; a whole one of four digits, as an axis has it: 1024."""
    if abs(value) < 1000 or (value == int(value) and abs(value) < 10_000):
        return f"{value:.4g}" if value == int(value) else f"{value:.3g}"
    return EngFormatter(sep="", useMathText=False)(float(f"{value:.3g}"))
