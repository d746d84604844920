"""Imported by the fork server alone, once: what each worker would otherwise spend its first second on."""

import contextlib
import ctypes
import importlib
import os
import sys
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads do not survive a fork

from rlkit.domains import scorers
from rlkit.rewards import worker
from rlkit.rewards.grading import grade

_PR_SET_CHILD_SUBREAPER = 36


def prepare() -> None:
    """Import the scorers and the libraries that they import at their first use, and reap the sandboxes of killed
    workers, which the fork server would otherwise warn of."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    scorers.names()
    for module in ("rlkit.domains.math.compare", "math_verify", "langdetect"):
        with contextlib.suppress(Exception):  # the answer that needs one that is missing says so
            importlib.import_module(module)
    grade("math__units", r"\boxed{1 \text{ m}}", "100 cm", {})  # makes pint's registry of units


if "multiprocessing.forkserver" in sys.modules and worker:
    prepare()
