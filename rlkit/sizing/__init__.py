"""What fits a device and how long it takes, from shapes alone: no weights are built, and training does not import it.

devices.py   memory, peak speed and bandwidth of GPUs, and what this machine has
memory.py    bytes of the local trainer and its sampler by part
estimate.py  seconds of a run, a step and an evaluation: the one prediction of time
fit.py       `rlkit doctor --fit`: both for one RunConfig, and what would fit if it does not
doctor.py    `rlkit doctor`: what this machine has and what follows
packing.py   how many runs of a study share a GPU, and what that was worth
"""
