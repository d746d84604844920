"""Scaling laws: forms, fits with honest intervals, comparison by extrapolation, and planning.

Plan files are in rlkit.laws.planning (which reads rlkit.config), pictures in rlkit.figures.laws.
"""

from rlkit.laws.compare import Backtest, Comparison, Recovery, backtest, compare, recover, sensitivity
from rlkit.laws.curves import fit_coverage, fit_pass_rates
from rlkit.laws.fitting import GroupedFit, LawFit, fit
from rlkit.laws.forms import tan_by_size
from rlkit.laws.law import Law, along, law, laws
from rlkit.laws.losses import Loss
from rlkit.laws.planner import Design, Price, allocate, design

__all__ = [
    "Backtest",
    "Comparison",
    "Design",
    "GroupedFit",
    "Law",
    "LawFit",
    "Loss",
    "Price",
    "Recovery",
    "allocate",
    "along",
    "backtest",
    "compare",
    "design",
    "fit",
    "fit_coverage",
    "fit_pass_rates",
    "law",
    "laws",
    "recover",
    "sensitivity",
    "tan_by_size",
]
