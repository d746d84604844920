"""Waits for what another process or thread does."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Return once the condition holds; fail where that takes so long that nothing can be happening."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
