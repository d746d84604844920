"""The memory of a jail and of everything it starts, limited as one sum by the kernel (cgroup version 2).

Where this process may not make a cgroup with a memory limit (version 1, a container with a read-only hierarchy, an
ordinary user without delegation), the jail adds up the memory of its processes every 50 ms instead (jail.py).
"""

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = 64 << 20  # bytes for the jail's own interpreter
_ENTER = 'echo $$ > "$0" && exec "$@"'


def parent(root: Path = ROOT, own: str | None = None) -> Path | None:
    """The nearest cgroup above this process whose children can have a memory limit and where one may be made.

    A cgroup with processes of its own cannot pass controllers on, so it is never this process's own one unless
    that is the root.
    """
    if own is None:
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/cgroup").read_text().splitlines()
            own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None or not (root / "cgroup.controllers").exists():
        return None
    here = root / own.strip("/")
    for folder in (here, *here.parents):
        with contextlib.suppress(OSError):
            control = (folder / "cgroup.subtree_control").read_text().split()
            if "memory" in control and os.access(folder, os.W_OK):
                return folder
        if folder == root:
            return None
    return None


class Group:
    """A cgroup for one jail.

    Raises:
        OSError: it cannot be made, or has no memory limit.
    """

    def __init__(self, parent: Path, name: str, memory: int) -> None:
        self.folder = parent / name
        self.folder.mkdir()
        try:
            (self.folder / "memory.max").write_text(str(memory + OWN))
            with contextlib.suppress(OSError):  # kernels without swap accounting
                (self.folder / "memory.swap.max").write_text("0")
        except OSError:
            self.close()
            raise

    def command(self, command: list[str]) -> list[str]:
        """The command, started inside the group."""
        return ["/bin/sh", "-c", _ENTER, str(self.folder / "cgroup.procs"), *command]

    def kills(self) -> int:
        """How many processes the kernel has ended here for want of memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folder / "memory.events").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def close(self) -> None:
        """Remove the group, whose processes have ended or are about to."""
        for _ in range(50):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)
            else:
                return
