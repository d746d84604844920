"""Scaling laws: forms, fits with honest intervals, comparison by extrapolation, and planning. Pictures are in
rlkit.figures.laws."""

from rlkit.laws.compare import Backtest, Comparison, Recovery, backtest, compare, recover
from rlkit.laws.design import allocate, allocate_rollouts, design
from rlkit.laws.fitting import GroupedFit, LawFit, fit
from rlkit.laws.forms import tan_by_size
from rlkit.laws.law import Law, along, law, laws
from rlkit.laws.planning import plan
from rlkit.laws.samples import fit_coverage, fit_pass_rates
from rlkit.laws.solver import Loss

__all__ = [
    "Backtest",
    "Comparison",
    "GroupedFit",
    "Law",
    "LawFit",
    "Loss",
    "Recovery",
    "allocate",
    "allocate_rollouts",
    "along",
    "backtest",
    "compare",
    "design",
    "fit",
    "fit_coverage",
    "fit_pass_rates",
    "law",
    "laws",
    "plan",
    "recover",
    "tan_by_size",
]
