"""Outputs of a cell that a thread keeps up to date: the picture and the table beside a panel's widgets."""

import base64
import threading
import time
from collections.abc import Callable
from typing import Any

_REST = 0.3  # seconds between two calls of a worker


class Worker:
    """Calls a function in a thread of its own: after each `wake`, and every `every` seconds while it says that
    there is more to come.

    A wake is followed after `quiet` seconds, so that what a click changes is on its way first. Between calls is a
    rest, so dragging a slider redraws a few times a second. An exception does not end the thread: it goes to
    `failed`, and the next call comes as if there were more.
    """

    def __init__(
        self,
        work: Callable[[], bool],
        failed: Callable[[Exception], None],
        every: float = 1.0,
        quiet: float = 0.0,
    ) -> None:
        self._work, self._failed, self._every, self._quiet = work, failed, every, quiet
        self._woken = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._loop, name="rlkit-live", daemon=True)

    def start(self) -> None:
        """Begin, with a first call."""
        self._woken.set()
        self._thread.start()

    def wake(self) -> None:
        """Something has changed: call soon."""
        self._woken.set()

    def stop(self) -> None:
        """Make no further call."""
        self._ended = True
        self._woken.set()

    def _loop(self) -> None:
        more = False
        while not self._ended:
            if self._woken.wait(self._every if more else None):
                time.sleep(self._quiet)
            self._woken.clear()
            if self._ended:
                return
            try:
                more = self._work()
            except Exception as problem:  # such as a file that is being replaced
                more = True
                self._failed(problem)
            time.sleep(_REST)


class Output:
    """A place in a cell's output whose content is replaced; what it holds last is what a saved notebook
    shows."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self) -> None:
        """Take the place, empty."""
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def picture(self, png: bytes, words: str) -> None:
        """A picture, and words for those who do not see it."""
        self._update({"image/png": base64.b64encode(png).decode(), "text/plain": words})

    def html(self, content: str, words: str) -> None:
        """HTML, and the same as plain text."""
        self._update({"text/html": content, "text/plain": words})

    def _update(self, bundle: dict[str, str]) -> None:
        if self._handle is not None:
            self._handle.update(bundle, raw=True)
