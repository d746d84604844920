"""Ctrl-C and SIGTERM: at once before the first step, then at the next step border, and a second Ctrl-C at once."""

import os
import signal
import threading
from types import FrameType

NOTICE = b"\nStopping after this step; Ctrl-C again stops at once.\n"


class Interrupted(KeyboardInterrupt):
    """A first signal that came before the first step: there is nothing to finish."""


class Interrupt:
    """Within the block a first SIGINT or SIGTERM raises Interrupted. After `defer` it sets `requested` instead, and a
    second SIGINT raises KeyboardInterrupt. Outside the main thread, which alone gets signals, nothing changes."""

    requested = False
    _deferred = False

    def __enter__(self) -> "Interrupt":
        here = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """From now on there is work that a signal should let come to its border."""
        self._deferred = True

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._deferred:
            raise Interrupted("interrupted before the first step")
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            os.write(2, NOTICE)  # a handler must not wait for a lock of print's
        self.requested = True
