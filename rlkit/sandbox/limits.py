"""What a program in the sandbox may use, and what it finds in its environment; its seconds are reward.timeout's."""

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}  # fmt: skip
"""All that a program finds in its environment."""
LIMITS = {"AS": 1 << 30, "FSIZE": 64 << 20, "NPROC": 64, "NOFILE": 256, "CORE": 0}
"""What a program may use, by `resource`'s names; AS (bytes) also for all processes together, FSIZE of all files."""
OUTPUT = 16 << 20  # bytes of standard output, and of standard error
