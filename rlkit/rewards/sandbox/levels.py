"""Which isolation works on this machine, and the command that starts a jail with it.

bubblewrap  new network, PID, IPC, UTS and mount namespaces over a read-only system; as root without a
            user namespace (programs run as another user), as an ordinary user with one
rlimits     no namespaces: own user, own folder, rlimits. Needs root. Programs can open connections and
            read what all users of the machine may read. Packages are those that all users can read
unsafe      own process group and rlimits only; programs can do what this user can
"""

import json
import os
import platform
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlkit.errors import UserError
from rlkit.rewards.sandbox import cgroups

_HERE = Path(__file__).parent
_PYTEST = ("py.py", "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
_COMPILED = ("numpy", "numpy.libs")
_PACKAGES = (*_COMPILED, "sortedcontainers", *_PYTEST)
_FIRST_USER, _USERS = 200_000, 50_000  # uids of programs when root starts the sandbox: one for each jail
_ADVICE = (
    "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) and allow namespaces (in Docker: "
    "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined), "
    "or set reward.sandbox=unsafe on a machine that you can lose."
)


@dataclass(frozen=True)
class Level:
    """An isolation that works here: its name, and what jail.py is told."""

    name: str  # bubblewrap, rlimits or unsafe
    inside: str  # namespaces, uid or none
    python: str


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
    how = "by a cgroup" if cgroups.parent() else "by adding it up every 50 ms"
    memory = f"The memory of all processes of a program is limited {how}."
    if name == "bubblewrap":
        who = "as root, programs as another user" if os.geteuid() == 0 else "with a user namespace"
        about = "no network, read-only system, own processes. Nothing to raise."
        return f"sandbox: bubblewrap ({who}): {about} {memory}"
    return (
        f"sandbox: {name}, because bubblewrap does not work here: {bubblewrap_problem()} {_ADVICE} {memory}"
    )


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
    from rlkit.rewards.sandbox.client import Jail

    try:
        with Jail(level) as jail:
            outcome = jail.run("import csv\nprint(6 * 7)", b"", seconds=10)
    except (OSError, RuntimeError) as error:
        return f"{error}."
    return None if outcome.stdout == b"42\n" else f"a trial program ended with {outcome}."


def _user(number: int) -> int:
    """The uid of a jail's programs, one that nobody has; containers may map few uids only."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        highest = max(int(first) + int(count) for first, _, count in map(str.split, lines))
    except (OSError, ValueError):
        highest = 1 << 16
    return _FIRST_USER + number if highest > _FIRST_USER + _USERS else 60_000 + number % 5_000


def command(level: Level, descriptor: int, number: int, modules: Sequence[str] = ()) -> list[str]:
    """The command line of a jail whose control socket is `descriptor`; `number` tells jails apart. With `modules`,
    which the jail imports at its start, all installed packages can be read."""
    user = _user(number) if os.geteuid() == 0 and level.inside != "none" else 0
    script = str(_HERE / "jail.py") if level.inside != "namespaces" else "/jail/jail.py"
    folders = {} if level.inside == "namespaces" else _importable(level)
    installed = _installed() if modules else []
    bound = [f"/installed/{i}" for i in range(len(installed))] if level.inside == "namespaces" else installed
    python = _python() if modules else level.python  # what is compiled loads in our own interpreter only
    inside = [python, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, json.dumps([folders, bound]), script]
    inside += [str(descriptor), level.inside, str(user), *modules]
    return inside if level.inside != "namespaces" else [*_bubblewrap(python, installed), *inside]


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

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
"""All that a program finds in its environment."""


def _bubblewrap(python: str, installed: list[str]) -> list[str]:
    root = os.geteuid() == 0
    line = ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    line += ["--cap-drop", "ALL"] if root else ["--unshare-user"]
    capabilities = ["CAP_SYS_ADMIN", "CAP_KILL"] + (["CAP_SETUID", "CAP_SETGID"] if root else [])
    for name in capabilities:
        line += ["--cap-add", name]
    line += ["--clearenv"]
    for name, value in ENVIRONMENT.items():
        line += ["--setenv", name, value]
    for place in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(place):
            line += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            line += ["--ro-bind", place, place]
    line += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    line += ["--ro-bind-try", "/etc/localtime", "/etc/localtime"]
    prefix = str(Path(python).parent.parent)
    if not prefix.startswith("/usr"):
        for parent in reversed(Path(prefix).parents[:-1]):
            line += ["--perms", "0755", "--dir", str(parent)]
        line += ["--ro-bind", prefix, prefix]
    for folder in _site_folders(prefix):
        line += ["--tmpfs", folder, "--remount-ro", folder]  # the grader may be installed there
    line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    line += ["--perms", "0755", "--dir", "/jail", "--perms", "0755", "--dir", "/packages"]
    for name in ("jail.py", "roles.py", "values.py"):
        line += ["--ro-bind", str(_HERE / name), f"/jail/{name}"]
    for name, folder in _packages().items():
        line += ["--ro-bind", folder, f"/packages/{name}"]
    if installed:
        line += ["--perms", "0755", "--dir", "/installed"]
    for index, folder in enumerate(installed):
        line += ["--ro-bind", folder, f"/installed/{index}"]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _site_folders(prefix: str) -> list[str]:
    folders = {*site.getsitepackages([prefix]), *site.getsitepackages(["/usr", "/usr/local"]), *sys.path}
    names = ("site-packages", "dist-packages")
    visible = ("/usr/", f"{prefix}/")
    return sorted(f for f in folders if Path(f).name in names and f.startswith(visible) and os.path.isdir(f))


def _installed() -> list[str]:
    """The folders of installed packages that this process imports from."""
    return [
        f
        for f in dict.fromkeys(map(os.path.realpath, sys.path))
        if f.endswith("-packages") and os.path.isdir(f)
    ]


def _importable(level: Level) -> dict[str, str]:
    """The folders of `_packages` by module, for a level that sees the machine's files: what is compiled loads in a
    Python like ours only."""
    own = os.path.realpath(level.python) == _python() or _version(level.python) == list(sys.version_info[:2])
    found = {name.removesuffix(".py"): str(Path(path).parent) for name, path in _packages().items()}
    return found if own else {name: folder for name, folder in found.items() if name not in _COMPILED}


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
