"""What fits a device and how long it takes, from shapes alone: no weights are built, and training does not import it.

devices.py   memory, peak speed and bandwidth of GPUs, and which this machine has
memory.py    bytes by part of a run of the local trainer, or on verl of each of its GPUs
estimate.py  seconds of a run, a step and an evaluation: the one prediction of time
doctor.py    `rlkit doctor`: what a machine lacks; with `--fit` whether a run fits, and what would if it does not
"""
