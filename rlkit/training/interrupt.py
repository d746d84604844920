"""Ctrl-C and SIGTERM: the first ends the run at the next step border, a second Ctrl-C at once."""

import signal
import threading
from types import FrameType


class Interrupt:
    """Within the block, `requested` is True after a first SIGINT or SIGTERM; a second SIGINT raises
    KeyboardInterrupt. Outside the main thread signals cannot be caught, and nothing changes."""

    requested = False

    def __enter__(self) -> "Interrupt":
        self._previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
