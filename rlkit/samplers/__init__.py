"""Samplers: where responses come from. `torch` runs anywhere; both sides speak `rlkit.types.Sampler`."""
