"""rlkit: a research workbench for the scaling laws of agentic reinforcement learning.

The public names below are imported when first used (PEP 562), so `import rlkit` stays light: each line
is a name and the module that defines it. Add yours here; tests/test_public_names.py pins the list.
"""

import importlib
import os
from typing import Any

__version__ = "0.2.0"

# Threads of torch (GNU OpenMP) wait for each other spinning, for milliseconds: where another program wants their core,
# a step of a small model takes six times as long. A tenth of a millisecond loses nothing. Read when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_PUBLIC = {
    # Configure and run.
    "load": "rlkit.config",
    "train": "rlkit.backends",
    "launch": "rlkit.panels.launching",
    "attach": "rlkit.panels.launching",
    "study": "rlkit.studies.study",
    # Act in environments.
    "BaseEnvironment": "rlkit.environments.base",
    "ActionResult": "rlkit.environments.base",
    "BaseAgent": "rlkit.agents.agents",
    "AgenticTrainer": "rlkit.agents.trainer",
    # Read what was run.
    "read": "rlkit.results.read",
    "read_evals": "rlkit.results.read",
    "read_configs": "rlkit.results.read",
    # Work with both in a notebook.
    "panel": "rlkit.panels",
    "law_explorer": "rlkit.panels",
    "sample_browser": "rlkit.panels",
    # Score and evaluate.
    "score": "rlkit.rewards",
    "evaluate": "rlkit.training.export",
    "pass_at_k": "rlkit.evaluation",
    # Laws.
    "fit": "rlkit.laws",
    "compare": "rlkit.laws",
    "backtest": "rlkit.laws",
    "recover": "rlkit.laws",
    "plan": "rlkit.laws.planning",
    "law": "rlkit.laws",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
