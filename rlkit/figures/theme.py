"""One look for all figures: widths of venues, fonts, labels, and a colour, marker and line for each model."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlkit.measures.tables import in_order
from rlkit.seeds import derive

if TYPE_CHECKING:
    import pandas as pd

WIDTHS = {
    "neurips": 5.5,
    "iclr": 5.5,
    "colm": 5.5,
    "jmlr": 6.0,
    "tmlr": 6.5,
    "icml": 3.25,
    "icml-text": 6.75,
    "acl": 3.03,
    "acl-text": 6.3,
    "aaai": 3.3,
    "aaai-text": 7.0,
    "cvpr": 3.25,
    "cvpr-text": 6.875,
}
"""Inches of the text width, or of a column where the venue prints two (`-text` spans both): the venues' style
files of 2025."""

LABELS = {
    "step": "training steps",
    "compute/total_flops": "training FLOPs, all phases",
    "tokens/response": "response tokens",
    "level": "held-out pass@1 to reach",
    "pass@1": "held-out pass@1",
    "data.train_max_samples": "unique training tasks",
    "to": "unique training tasks",
    "per_doubling": "change of pass@1 a doubling",
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
    "cell": "",
    "model.path": "",
    "variant": "",
    "when": "",
    "part": "",
}

PALETTE = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#56b4e9", "#ca9161", "#949494")
"""seaborn's `colorblind` without its yellow and pale pink, which fade on paper."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))

# Nominal sizes, smallest first. Small models and large ones are rarely drawn together, so each range has a ramp.
_SMALL = [f"{n}k" for n in (10, 30, 50, 60, 100, 150, 200, 300, 600)] + [
    f"{n}m" for n in (1, 3, 10, 30, 100, 300)
]
_LARGE = ["135m", "360m"] + [f"{n}b" for n in ("0.5", "0.6", "1.5", "1.7", 3, 4, 7, 8, 14, 32, 72)]
_SIZES = _SMALL + _LARGE

FONT = "STIXGeneral"  # Times-like, as the venues' text; comes with matplotlib
_STYLE = {
    "font.family": FONT,
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "grid.linewidth": 0.4,
    "grid.color": "0.9",
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.handlelength": 2.4,  # long enough to show a line's pattern
    "axes.formatter.use_mathtext": True,  # × 10^11 instead of 1e11
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "savefig.bbox": None,  # the exact width: nothing is cropped
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: text stays text, and venues' checks accept it
    "ps.fonttype": 42,
    "svg.fonttype": "path",  # the same look where the font is not installed
    "svg.hashsalt": "rlkit",  # else ids are random and no two files are equal
}


def theme() -> None:
    """Use the look of these figures for everything that this process draws with matplotlib."""
    import matplotlib

    matplotlib.rcParams.update(_rc())


@contextmanager
def styled() -> Iterator[None]:
    """The look of these figures inside the block only."""
    import matplotlib

    with matplotlib.rc_context(_rc()):
        yield


def _rc() -> Any:
    from cycler import cycler

    return {**_STYLE, "axes.prop_cycle": cycler(color=list(PALETTE))}


def looks(df: "pd.DataFrame", by: str = "model.path") -> dict[Any, dict[str, Any]]:
    """`color`, `marker` and `linestyle` of each value of `by`, smallest model first.

    A model has the same look in every figure of every study; the colour of one with a nominal size is that size's step
    on a ramp from light (small) to dark (large), and its line is solid. Where a study has variants, the colour of a
    cell is its variant's, the first of the study's file first, and marker and line are those of its size or of what
    else the grid varies. Other values take the looks in their order (by size, then by value). In grey, marker and line
    tell apart what colour does not.
    """
    model, size, variant, place = "model.path", "parameters_non_embedding", "variant", "variant_place"
    pairs = in_order(df, by)
    names = list(pairs[by])
    models = list(pairs[model]) if model in pairs else []
    if place in pairs and pairs[variant].nunique() > 1:
        return dict(zip(names, _of_variants(pairs, by), strict=True))
    if by == size:
        return dict(zip(names, _of_sizes([_nearest(name) for name in names]), strict=True))
    if len(set(models)) == len(names):
        return dict(zip(names, _of_models(models), strict=True))
    return {name: look(place) for place, name in enumerate(names)}


def _of_models(models: Sequence[Any]) -> list[dict[str, Any]]:
    """The looks of models: steps of the ramp where all have a nominal size, else by their names."""
    sizes = [_size(str(name)) for name in models]
    known = [size for size in sizes if size is not None]
    if len(known) == len(models):
        return _of_sizes(known)
    places = [
        derive("look", str(m)) % len(PALETTE) if s is None else s for m, s in zip(models, sizes, strict=True)
    ]
    return [look(place) for place in _distinct(places)]


def _of_sizes(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The looks of nominal sizes; of two models of one size, the second takes the next marker."""
    found: list[dict[str, Any]] = []
    for place, size in enumerate(sizes):
        style = size_look(size)
        marker = MARKERS.index(style["marker"]) + sizes[:place].count(size)
        found.append(style | {"marker": MARKERS[marker % len(MARKERS)]})
    return found


def _of_variants(pairs: "pd.DataFrame", by: str) -> list[dict[str, Any]]:
    """The colour of each row's variant, with the marker and line of what it has beside that."""
    first = [look(int(place)) for place in pairs["variant_place"]]
    beside = [
        str(name).removeprefix(variant)
        for name, variant in zip(pairs[by], pairs["variant"].astype(str), strict=True)
    ]
    if len(set(beside)) == 1:
        return first
    models = dict(zip(beside, pairs["model.path"], strict=True)) if "model.path" in pairs else {}
    if len(set(models.values())) == len(set(beside)):
        styles = dict(zip(models, _of_models(list(models.values())), strict=True))
    else:
        styles = {rest: look(place) for place, rest in enumerate(dict.fromkeys(beside))}
    return [styles[rest] | {"color": one["color"]} for one, rest in zip(first, beside, strict=True)]


def look(place: int) -> dict[str, Any]:
    """The look of a place in the order: colour, marker and line have cycles of different lengths."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }


def colours(df: "pd.DataFrame", by: str = "model.path") -> dict[Any, Any]:
    """The colour of each value of `by` (see `looks`)."""
    return {name: value["color"] for name, value in looks(df, by).items()}


def size_look(place: int) -> dict[str, Any]:
    """The look of a nominal size: a step of its range's ramp, light to dark, a marker and a solid line."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    sizes, first = (_SMALL, 0) if place < len(_SMALL) else (_LARGE, len(_SMALL))
    share = (place - first) / (len(sizes) - 1)
    colour = to_hex(colormaps["plasma"](0.78 * (1 - share)))  # its palest fifth fades on white paper
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)], "linestyle": "-"}


def _size(model: str) -> int | None:
    """The place of a model's nominal size among `_SIZES`; None where its name has none."""
    found = re.search(r"(\d+(?:\.\d+)?[kmb])(?![a-z0-9])", model.rsplit("/", 1)[-1].lower())
    return _SIZES.index(found[1]) if found and found[1] in _SIZES else None


def _nearest(parameters: float) -> int:
    """The place of the nominal size nearest to a count of parameters."""
    units = {"k": 1e3, "m": 1e6, "b": 1e9}
    sizes = [math.log(float(size[:-1]) * units[size[-1]]) for size in _SIZES]
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - math.log(max(parameters, 1))))


def _distinct(places: Sequence[int]) -> list[int]:
    """The same places, a taken one moved on to the next whose colour is free (while there is one)."""
    chosen: list[int] = []
    for place in places:
        colours_taken = {p % len(PALETTE) for p in chosen}
        while place % len(PALETTE) in colours_taken and len(colours_taken) < len(PALETTE):
            place += 1
        chosen.append(place)
    return chosen


def domain_name(data_source: str) -> str:
    """A data_source in words: `simulation__string_trace` is "simulation: string trace"."""
    return data_source.replace("__", ": ", 1).replace("_", " ")


def short(value: float) -> str:
    """A number for a legend: 107k, 1.5M, 0.0003; a whole one of four digits, as an axis has it: 1024."""
    from matplotlib.ticker import EngFormatter

    if value == int(value) and abs(value) < 10_000:
        return str(int(value))
    if abs(value) < 1000:
        return f"{value:.3g}"
    return EngFormatter(sep="", useMathText=False)(float(f"{value:.3g}"))
