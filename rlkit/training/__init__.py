"""Training on this machine's device: the RL loop, warm starts, checkpoints, and what is done with saved policies.

In: a RunConfig, batches of Task (rlkit.data), a sampler and a router of rewards. Out: weights in checkpoints, and
metrics in the run's folder. loop.py is the step; update.py computes it, run.py holds what it works with.
"""
