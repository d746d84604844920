"""Imported by the fork server alone, once, for what each worker would otherwise spend its first second on."""

import contextlib
import ctypes
import importlib
import os
import sys
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads do not survive a fork

from rlkit.domains import scorers
from rlkit.rewards.grading import grade

_PR_SET_CHILD_SUBREAPER = 36

if sys.platform == "linux":  # reap the sandboxes of killed workers, without the fork server's warning
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
scorers.names()  # imports them
for module in (
    "rlkit.domains.math.compare",
    "langdetect",
):  # which scorers import at their first use
    with contextlib.suppress(Exception):  # the answer that needs a missing one says so
        importlib.import_module(module)
grade("math__units", r"\boxed{1 \text{ m}}", "100 cm", {})  # makes pint's registry of units
