"""Following a file that another process appends to."""

from pathlib import Path


class Tail:
    """What is appended to a file, line by line; a line that is still being written waits. A file that became
    shorter is a new one.

    Attributes:
        offset: bytes that were read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def lines(self) -> list[bytes]:
        """The whole lines since the last call, without their ends; none where there is no file yet."""
        if not self.path.exists():
            return []
        if self.path.stat().st_size < self.offset:
            self.offset = 0
        with self.path.open("rb") as file:
            file.seek(self.offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.offset += len(whole) + len(newline)
        return whole.split(b"\n") if newline else []
