"""What fits a device and how long it takes, from shapes alone: no weights are built; training does not import it.

In: a RunConfig and a device (devices.py). Out: bytes by part (memory.py), seconds by part (estimate.py), and a
verdict with what would fit (doctor.py, `rlkit doctor --fit`).
"""
