"""One look for all figures: widths of venues, fonts, labels, and a colour, marker and line for each model."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlkit.measures.tables import in_order

if TYPE_CHECKING:
    import pandas as pd

WIDTHS = {
    "neurips": 5.5, "iclr": 5.5, "colm": 5.5, "jmlr": 6.0, "tmlr": 6.5,
    "icml": 3.25, "icml-text": 6.75, "acl": 3.03, "acl-text": 6.3, "aaai": 3.3, "aaai-text": 7.0,
    "cvpr": 3.25, "cvpr-text": 6.875,
}  # fmt: skip
"""Inches of the text width, or of a column where the venue prints two (`-text` spans both): the venues' style
files of 2025."""

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
"""seaborn's `colorblind` without its yellow and pale pink, which fade on paper."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))

# Nominal sizes, smallest first. Small models and large ones are rarely drawn together, so each range has a ramp.
_SMALL = [f"{n}k" for n in (10, 30, 50, 60, 100, 150, 200, 300, 600)] + [
    f"{n}m" for n in (1, 3, 10, 30, 100, 300)
]
_LARGE = ["135m", "360m"] + [f"{n}b" for n in ("0.5", "0.6", "1.5", "1.7", 3, 4, 7, 8, 14, 32, 72)]
_SIZES = _SMALL + _LARGE

_STYLE = {
    "font.family": "STIXGeneral",  # Times-like, as the venues' text; comes with matplotlib
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
    "grid.linewidth": 0.4,
    "grid.color": "0.9",
    "axes.grid": True,
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
        styles = _of_sizes([_nearest(name) for name in names])
    elif len(set(models)) == len(names):
        styles = _of_models(models)
    else:
        styles = list(map(look, range(len(names))))
    return dict(zip(names, styles, strict=True))


def _of_models(models: Sequence[Any]) -> list[dict[str, Any]]:
    """The looks of models: steps of the ramp where all have a nominal size, else by their order."""
    found = [
        re.search(r"(\d+(?:\.\d+)?[kmb])(?![a-z0-9])", str(m).rsplit("/", 1)[-1].lower()) for m in models
    ]
    sizes = [_SIZES.index(size[1]) for size in found if size and size[1] in _SIZES]
    return _of_sizes(sizes) if len(sizes) == len(models) else list(map(look, range(len(models))))


def _of_sizes(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The looks of nominal sizes, a step of their range's ramp each; of two models of one size, the second takes the
    next marker."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    found: list[dict[str, Any]] = []
    for count, place in enumerate(sizes):
        ramp, first = (_SMALL, 0) if place < len(_SMALL) else (_LARGE, len(_SMALL))
        share = (place - first) / (len(ramp) - 1)
        colour = to_hex(colormaps["plasma"](0.78 * (1 - share)))  # its palest fifth fades on white paper
        marker = MARKERS[(place + sizes[:count].count(place)) % len(MARKERS)]
        found.append({"color": colour, "marker": marker, "linestyle": "-"})
    return found


def _of_variants(pairs: "pd.DataFrame", by: str) -> list[dict[str, Any]]:
    """The colour of each row's variant, with the marker and line of what it has beside that."""
    colours = [look(int(place))["color"] for place in pairs["variant_place"]]
    named = zip(pairs[by], pairs["variant"].astype(str), strict=True)
    beside = [str(name).removeprefix(variant) for name, variant in named]
    if len(set(beside)) == 1:
        return [look(int(place)) for place in pairs["variant_place"]]
    models = dict(zip(beside, pairs["model.path"], strict=True)) if "model.path" in pairs else {}
    different = list(dict.fromkeys(beside))
    sizes = len(set(models.values())) == len(different)
    told = _of_models([models[rest] for rest in different]) if sizes else map(look, range(len(different)))
    styles = dict(zip(different, told, strict=True))
    return [styles[rest] | {"color": colour} for colour, rest in zip(colours, beside, strict=True)]


def look(place: int) -> dict[str, Any]:
    """The look of a place in the order: colour, marker and line have cycles of different lengths."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }


def _nearest(parameters: float) -> int:
    """The place of the nominal size nearest to a count of parameters."""
    units = {"k": 1e3, "m": 1e6, "b": 1e9}
    sizes = [math.log(float(size[:-1]) * units[size[-1]]) for size in _SIZES]
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - math.log(max(parameters, 1))))


def domain_name(data_source: str) -> str:
    """A data_source in words: `simulation__string_trace` is "simulation: string trace"."""
    return data_source.replace("__", ": ", 1).replace("_", " ")


def short(value: float) -> str:
    """A number for a legend: 107k, 1.5M, 0.0003; a whole one of four digits, as an axis has it: 1024."""
    from matplotlib.ticker import EngFormatter

    if abs(value) < 1000 or (value == int(value) and abs(value) < 10_000):
        return f"{value:.4g}" if value == int(value) else f"{value:.3g}"
    return EngFormatter(sep="", useMathText=False)(float(f"{value:.3g}"))
