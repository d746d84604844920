"""Length-prefixed JSON frames on a socket: what the router and its workers speak.

JSON and not pickle, so that a worker that untrusted text has taken over can send nothing but values.
"""

import json
import select
import socket
import time
from typing import Any

_HEADER = 4  # bytes of big-endian length
GRADED, LOADING, END = range(3)
"""What a worker says: [GRADED, outcome, …] of the batch's next answers, [LOADING, seconds to wait, module], and
[END, whether it has grown too big] behind the last outcome of a batch."""
HELD = 4  # bytes of the shared memory in which a worker notes the number of the answer that it is grading


def _plain(value: Any) -> Any:
    """numpy scalars and arrays as lists and numbers, other mappings as dicts, bytes as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "items"):
        return dict(value)
    if isinstance(value, bytes):
        return value.decode()  # UnicodeDecodeError is a ValueError: the caller reports it
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """JSON bytes; raises TypeError or ValueError for what JSON has no form for."""
    return _ENCODER.encode(value).encode()


def frame(payload: bytes) -> bytes:
    """The payload behind its length."""
    return len(payload).to_bytes(_HEADER, "big") + payload


class Channel:
    """Frames over one end of a stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def send(self, payload: bytes) -> None:
        self.sock.sendall(frame(payload))

    def receive(self, timeout: float | None = None) -> Any:
        """The next frame, decoded. Raises TimeoutError after `timeout` seconds, EOFError at the end."""
        end = None if timeout is None else time.monotonic() + timeout
        while not (whole := self._whole()):
            wait = None if end is None else max(0.0, end - time.monotonic())
            poll = select.poll()  # select.select fails on descriptors above 1023
            poll.register(self.sock, select.POLLIN)
            if not poll.poll(None if wait is None else wait * 1000):
                raise TimeoutError
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._buffer += data
        text = bytes(self._buffer[_HEADER:whole])
        del self._buffer[:whole]
        return json.loads(text)

    def _whole(self) -> int:
        """Length of the first frame with its header once all of it has arrived, else 0."""
        if len(self._buffer) < _HEADER:
            return 0
        size = _HEADER + int.from_bytes(self._buffer[:_HEADER], "big")
        return size if len(self._buffer) >= size else 0

    def close(self) -> None:
        self.sock.close()
