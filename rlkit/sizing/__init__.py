"""What fits on a device and how long it takes, from shapes alone: no weights are built and torch is not imported, but
to measure this machine's host.

shapes.py    a decoder's dimensions, from a ladder name, a published model or a config.json
devices.py   memory, peak speed and bandwidth of GPUs, and what this machine has
memory.py    bytes of the local trainer and its sampler by part
seconds.py   time of a step by phase
host.py      what launching a kernel takes on this machine, measured
fit.py       `rlkit doctor --fit`: both for one RunConfig, and what would fit if it does not
machine.py   `rlkit doctor`: what this machine has and what follows
packing.py   how many runs of a study share a GPU
"""
