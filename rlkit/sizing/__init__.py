"""What fits a device and how long it takes, from shapes alone: no weights are built, and training does not import it.

devices.py   memory, peak speed and bandwidth of GPUs; what this machine has and what follows (`rlkit doctor`)
memory.py    bytes of a run by part, of the local trainer or on verl
estimate.py  seconds of a run, a step and an evaluation; whether a run fits, and what would (`rlkit doctor --fit`)
"""
