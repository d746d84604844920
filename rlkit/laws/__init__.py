"""Scaling laws: forms, fits with honest intervals, comparison and planning; pictures are in rlkit.figures.laws.

In: a table (pandas) and the name of a law (forms.py). Out: a LawFit with estimates, intervals and warnings
(fitting.py, report.py), what it predicts of rows left out (compare.py), and plans of studies (planning.py).
"""

from rlkit.laws.compare import Backtest, Recovery, backtest, compare, recover
from rlkit.laws.fitting import LawFit, fit, fit_coverage, fit_pass_rates
from rlkit.laws.law import Law, along, law, laws
from rlkit.laws.planning import allocate, design, plan

__all__ = [
    "Backtest", "Law", "LawFit", "Recovery", "allocate", "along", "backtest", "compare", "design",
    "fit", "fit_coverage", "fit_pass_rates", "law", "laws", "plan", "recover",
]  # fmt: skip
