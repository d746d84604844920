"""Samplers: where responses come from, and which one a run takes. All speak `rlkit.types.Sampler`."""
