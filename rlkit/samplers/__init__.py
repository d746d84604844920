"""Samplers: where responses come from, and which one a run takes. All speak `rlkit.types.Sampler`."""

from rlkit.samplers.choice import chosen, make_sampler

__all__ = ["chosen", "make_sampler"]
