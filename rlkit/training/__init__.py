"""Training on this machine's device: the RL loop, supervised training, checkpoints."""
