"""A trained policy behind HTTP: POST a problem, get its solution and the chain of actions that led to it.

    rlkit serve outputs/demo-math/runs/<id>
    curl localhost:8000/solve -H 'content-type: application/json' \\
        -d '{"domain": "mathematics", "problem": "3x + 7 = 16"}'

All live episodes share sampler calls, equal requests share one episode (decoding is greedy, so answers are
reproducible) and finished ones are cached. Not covered: several processes, or several policies.
"""

import importlib
from typing import Any

_PUBLIC = {
    "serve": "rlkit.serving.server",
    "create_app": "rlkit.serving.app",
    "Settings": "rlkit.serving.solver",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.serving' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
