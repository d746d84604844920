"""Training on this machine's device: the RL loop, supervised training, checkpoints.

In: a RunConfig and tasks. Out: a policy's checkpoints, and metrics and graded samples in the run's folder.
"""
