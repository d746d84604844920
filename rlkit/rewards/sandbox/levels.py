"""Which isolation works on this machine, and the command that starts a jail with it.

bubblewrap  new network, PID, IPC, UTS and mount namespaces over a read-only system; as root without a
            user namespace (programs run as another user), as an ordinary user with one
rlimits     no namespaces: own user, own folder, rlimits. Needs root. Programs can open connections and
            read what all users of the machine may read. Packages are those that all users can read
unsafe      own process group and rlimits only; programs can do what this user can
"""

import contextlib
import itertools
import json
import os
import platform
import shutil
import site
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

from rlkit.errors import UserError
from rlkit.rewards.sandbox.jail import Jail

_HERE = Path(__file__).parent
_PYTEST = ("py.py", "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
_COMPILED = ("numpy", "numpy.libs")
_PACKAGES = (*_COMPILED, "sortedcontainers", *_PYTEST)
PROMISED = ("numpy", "sortedcontainers", "pytest")
"""Packages that programs may import."""
_ADVICE = (
    "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) and allow namespaces (in Docker: "
    "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined), "
    "or set reward.sandbox=unsafe on a machine that you can lose."
)


class User(NamedTuple):
    """The uid of a jail's programs, 0 for our own, and what keeps other jails from having it while it is open."""

    number: int = 0
    lock: socket.socket | None = None


@dataclass(frozen=True)
class Level:
    """An isolation that works here."""

    name: str  # bubblewrap, rlimits or unsafe
    inside: str  # namespaces, uid or none: what jail.py is told
    python: str

    environment: ClassVar[dict[str, str]] = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    """All that a program finds in its environment."""

    def user(self) -> User:
        """A user for a jail's programs that no other jail of this machine has. Raises RuntimeError if none is left."""
        if os.geteuid() != 0 or self.inside == "none":
            return User()
        for number in _uids():
            lock = socket.socket(socket.AF_UNIX)
            try:
                lock.bind(f"\0rlkit-sandbox-user-{number}")  # the kernel frees it, however its holder ends
                return User(number, lock)
            except OSError:
                lock.close()
        raise RuntimeError("The sandbox does not start: every user for programs is taken.")

    def command(self, descriptor: int, user: int, modules: Sequence[str] = ()) -> list[str]:
        """The command line of a jail whose control socket is `descriptor`. With `modules`, which the jail imports at
        its start, all installed packages can be read."""
        namespaces = self.inside == "namespaces"
        folders = {} if namespaces else _importable(self.python)
        installed = _installed() if modules else []
        bound = [f"/installed/{i}" for i in range(len(installed))] if namespaces else installed
        python = _python() if modules else self.python  # what is compiled loads in our own interpreter only
        script = "/jail/jail.py" if namespaces else str(_HERE / "jail.py")
        line = [python, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, json.dumps([folders, bound]), script]
        line += [str(descriptor), self.inside, str(user), *modules]
        return [*_bubblewrap(python, installed), *line] if namespaces else line

    def group(self, memory: int) -> "Group | None":
        """A cgroup with this limit in bytes for a jail, where one may be made."""
        if (folder := group_folder()) is not None:
            with contextlib.suppress(OSError):
                return Group(folder, f"rlkit-{os.getpid()}-{next(_count)}", memory)
        return None


_count = itertools.count(1)


def choose(wanted: str = "auto") -> Level:
    """The level to use: the best that works for `auto`, else the one asked for.

    Raises:
        UserError: it does not work on this machine; the message says how to make it work.
    """
    if wanted == "unsafe":
        return Level("unsafe", "none", _python())
    if wanted in ("auto", "bubblewrap"):
        problem = bubblewrap_problem()
        if problem is None:
            return Level("bubblewrap", "namespaces", _python())
        if wanted == "bubblewrap":
            raise UserError(f"reward.sandbox is 'bubblewrap', which does not work here: {problem} {_ADVICE}")
    if os.geteuid() == 0 and (python := _public_python()):
        level = Level("rlimits", "uid", python)
        if (problem := trial(level)) is None:
            return level
        raise UserError(f"Programs of the policy cannot be run safely: {problem} {_ADVICE}")
    why = bubblewrap_problem() or "it was not asked for."
    raise UserError(
        f"Programs of the policy cannot be run safely: bubblewrap does not work here ({why}) and the "
        f"fallback with rlimits needs root and a Python that other users can read. {_ADVICE}"
    )


def report() -> str:
    """Which isolation is active on this machine and how to raise it, for people."""
    try:
        name = choose().name
    except UserError as error:
        return f"sandbox: none. {error}"
    how = "by a cgroup" if group_folder() else "by adding it up every 50 ms"
    memory = f"The memory of all processes of a program is limited {how}."
    if name == "bubblewrap":
        who = "as root, programs as another user" if os.geteuid() == 0 else "with a user namespace"
        about = "no network, read-only system, own processes. Nothing to raise."
        return f"sandbox: bubblewrap ({who}): {about} {memory}"
    why = bubblewrap_problem()
    return f"sandbox: {name}, because bubblewrap does not work here: {why} {_ADVICE} {memory}"


@lru_cache
def bubblewrap_problem() -> str | None:
    """Why bubblewrap cannot be used, or None if a trial run of a jail succeeds."""
    if platform.system() != "Linux":
        return "it exists for Linux only."
    if shutil.which("bwrap") is None:
        return "it is not installed."
    return trial(Level("bubblewrap", "namespaces", _python()))


@lru_cache
def trial(level: Level) -> str | None:
    """Why a program cannot be run at this level here, or None if a trial run succeeds."""
    try:
        with Jail(level) as jail:
            outcome = jail.run("import csv\nprint(6 * 7)", b"", seconds=10)
    except (OSError, RuntimeError) as error:
        return f"{error}."
    return None if outcome.stdout == b"42\n" else f"a trial program ended with {outcome}."


def _uids() -> range:
    """Users that nobody has; containers may map few uids only."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        highest = max(int(first) + int(count) for first, _, count in map(str.split, lines))
    except (OSError, ValueError):
        highest = 1 << 16
    return range(200_000, 250_000) if highest > 250_000 else range(60_000, 65_000)


_BOOT = """import sys, os, json, importlib.machinery as machinery
folders, installed = json.loads(sys.argv[1])
sys.argv[:] = sys.argv[2:]
sys.path[:0] = [os.path.dirname(sys.argv[0])]
sys.path += [f for f in ("/packages",) if os.path.isdir(f)] + installed
class Packages:
    def find_spec(name, path=None, target=None):
        return machinery.PathFinder.find_spec(name, [folders[name]]) if path is None and name in folders else None
sys.meta_path.append(Packages)
import jail
jail.main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])"""
"""Starts the jail. Packages are in a folder of their own, or of the machine's folders only those named are imported."""


def _bubblewrap(python: str, installed: list[str]) -> list[str]:
    root = os.geteuid() == 0
    line = ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    line += ["--cap-drop", "ALL"] if root else ["--unshare-user"]
    for name in ("CAP_SYS_ADMIN", "CAP_KILL", *(("CAP_SETUID", "CAP_SETGID") if root else ())):
        line += ["--cap-add", name]
    line += ["--clearenv"]
    for name, value in Level.environment.items():
        line += ["--setenv", name, value]
    for place in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(place):
            line += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            line += ["--ro-bind", place, place]
    for file in ("/etc/ld.so.cache", "/etc/localtime"):
        line += ["--ro-bind-try", file, file]
    prefix = str(Path(python).parent.parent)
    if not prefix.startswith("/usr"):
        for parent in reversed(Path(prefix).parents[:-1]):
            line += ["--perms", "0755", "--dir", str(parent)]
        line += ["--ro-bind", prefix, prefix]
    for folder in _site_folders(prefix):
        line += ["--tmpfs", folder, "--remount-ro", folder]  # the grader may be installed there
    line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for folder in ("/jail", "/packages", *(("/installed",) if installed else ())):
        line += ["--perms", "0755", "--dir", folder]
    bound = {f"/jail/{name}": str(_HERE / name) for name in _INNER}
    bound |= {f"/packages/{name}": folder for name, folder in _packages().items()}
    bound |= {f"/installed/{index}": folder for index, folder in enumerate(installed)}
    for place, origin in bound.items():
        line += ["--ro-bind", origin, place]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


_INNER = ("jail.py", "inside.py", "plain.py", "testing.py")


def _site_folders(prefix: str) -> list[str]:
    folders = {*site.getsitepackages([prefix]), *site.getsitepackages(["/usr", "/usr/local"]), *sys.path}
    names = ("site-packages", "dist-packages")
    visible = ("/usr/", f"{prefix}/")
    return sorted(f for f in folders if Path(f).name in names and f.startswith(visible) and os.path.isdir(f))


def _installed() -> list[str]:
    """The folders of installed packages that this process imports from."""
    folders = dict.fromkeys(map(os.path.realpath, sys.path))
    return [f for f in folders if f.endswith("-packages") and os.path.isdir(f)]


def _importable(python: str) -> dict[str, str]:
    """The folders of `_packages` by module, for a level that sees the machine's files: what is compiled loads in a
    Python like ours only."""
    own = os.path.realpath(python) == _python() or _version(python) == list(sys.version_info[:2])
    found = {name.removesuffix(".py"): str(Path(path).parent) for name, path in _packages().items()}
    return {name: folder for name, folder in found.items() if own or name not in _COMPILED}


@lru_cache
def _version(python: str) -> list[int]:
    """Its major and minor version."""
    ask = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=30)
    return [int(word) for word in done.stdout.split()]


def _packages() -> dict[str, str]:
    """The few installed packages that programs and pytest suites may import."""
    found = {}
    for folder in (Path(f) for f in [*sys.path, *site.getsitepackages()]):
        for name in _PACKAGES:
            path = folder / name
            if name not in found and (path.is_file() if name.endswith(".py") else path.is_dir()):
                found[name] = str(folder / name)
    return found


def _python() -> str:
    """The interpreter behind a virtual environment."""
    return os.path.realpath(sys.executable)


def _public_python() -> str | None:
    """An interpreter that every user can read, since programs run as another user."""
    for path in (_python(), "/usr/bin/python3", "/usr/local/bin/python3"):
        real = Path(os.path.realpath(path))
        if real.exists() and all(parent.stat().st_mode & 0o001 for parent in real.parents):
            return str(real)
    return None


# --- Memory of a jail and of everything it starts, limited as one sum by the kernel (cgroup version 2).
# Where no such cgroup can be made (version 1, a container with a read-only hierarchy, an ordinary user without
# delegation), the jail adds up the memory of its processes every 50 ms instead.

OWN = 64 << 20  # bytes for the jail's own interpreter
_ROOT = Path("/sys/fs/cgroup")
_ENTER = 'echo $$ > "$0" && exec "$@"'


def group_folder(root: Path = _ROOT, own: str | None = None) -> Path | None:
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
