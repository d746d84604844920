"""Scaling laws: forms, fits with honest intervals, comparison by extrapolation, and planning.

Plan files are in rlkit.laws.planning (which reads rlkit.config), figures in rlkit.laws.drawings.
"""

from rlkit.laws.compare import Backtest, Comparison, backtest, compare, sensitivity
from rlkit.laws.coverage import fit_coverage
from rlkit.laws.fitting import fit
from rlkit.laws.intrinsic import frontier, intrinsic_performance
from rlkit.laws.law import Law, along, law, laws
from rlkit.laws.losses import Loss
from rlkit.laws.planner import Design, Price, allocate, design
from rlkit.laws.recovery import Recovery, recover
from rlkit.laws.regression import regress
from rlkit.laws.result import GroupedFit, LawFit
from rlkit.laws.transfer import transfer_matrix

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
    "frontier",
    "intrinsic_performance",
    "law",
    "laws",
    "recover",
    "regress",
    "sensitivity",
    "transfer_matrix",
]
