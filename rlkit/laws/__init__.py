"""Scaling laws: forms, fits with honest intervals, comparison by extrapolation, and planning."""

from rlkit.laws.fitting import fit
from rlkit.laws.law import Law, along, law, laws
from rlkit.laws.losses import Loss
from rlkit.laws.result import GroupedFit, LawFit

__all__ = ["GroupedFit", "Law", "LawFit", "Loss", "along", "fit", "law", "laws"]
