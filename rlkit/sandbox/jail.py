"""The process in the sandbox: it imports what programs need and forks for every job that it is sent (levels.Jail). It
sets a program's limits, ends it with everything that it started, and says how it ended; nothing that a program writes
can be mistaken for that. Standard library only.

In bubblewrap a program has a PID, mount and IPC namespace of its own, with fresh /tmp, /dev/shm and /proc. With rlimits
its user's processes and files are removed afterwards. Unsafe ones have a process group."""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NoReturn

from . import inside, testing  # in the sandbox there is no rlkit
from .plain import Channel

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_PRIVATE, _MS_REC = 2, 4, 8, 1 << 18, 1 << 14
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PR_SET_DUMPABLE, _PR_SET_SECCOMP = 4, 22
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/var/crash")  # which all may write
_WATCH = 0.05  # seconds between looks at the memory of a program and its children
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _call(name: str, *arguments: Any) -> None:
    if _LIBC is not None and getattr(_LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def prctl(option: int, value: int, pointer: Any = 0) -> None:
    _call("prctl", option, value, pointer, 0, 0)


def main(settings: str) -> None:
    """Serve jobs until the caller closes the socket. The settings are JSON of control (the socket's descriptor), level,
    user (the uid of programs, 0 for ours), limits, modules (imported first) and paths (where they come from)."""
    given = json.loads(settings)
    control = os.dup(given["control"])  # a low number, as select wants it
    os.close(given["control"])
    sys.path[-1:] = given["paths"]  # in place of the sandbox's own folder
    prctl(_PR_SET_DUMPABLE, 0)  # a program of the same user cannot trace or read us
    if given["level"] == "rlimits":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    if given["level"] == "bubblewrap":
        if os.uname().machine not in _MACHINES:
            raise OSError(f"the sandbox knows no system calls of {os.uname().machine}")
        _call("unshare", _CLONE_NEWNET)  # without even a loopback device
    for module in given["modules"]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # collections in a forked program touch, and so copy, nothing of this process
    _Server(socket.socket(fileno=control), given).serve()


class _Server:
    def __init__(self, control: socket.socket, settings: Mapping[str, Any]) -> None:
        self.control, self.channel = control, Channel(control)
        self.level, self.user, self.limits = settings["level"], settings["user"], settings["limits"]

    def serve(self) -> None:
        self.channel.send("ready")
        while (request := socket.recv_fds(self.control, 1, 9))[0]:
            status, reason = self._run(request[1])
            self.channel.send(status, reason)
            # The caller sends one byte for each program: the order to kill it, or that it has read how it ended.
            if reason != "killed" and not self.control.recv(1):
                return

    def _run(self, descriptors: list[int]) -> tuple[int, str | None]:
        """One program from start to end: its exit status (negative: a signal) and why it was killed."""
        contained = self.level == "bubblewrap"
        folder = "/tmp" if contained else tempfile.mkdtemp(prefix="rlkit-jail-")
        if self.level == "rlimits":
            os.chown(folder, self.user, self.user)
        alive, life = os.pipe()  # closed when the program's first process ends
        if (pid := _fork_contained() if contained else os.fork()) == 0:
            try:
                os.close(alive)
                self.control.close()
                os.setsid()
                if contained:
                    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                    _mounts(self.limits["FSIZE"])
                if (program := os.fork()) == 0:  # which has nothing of the life pipe
                    os.chdir(folder)
                    self._program(*descriptors)
                for number in descriptors:
                    os.close(number)
                while (ended := os.wait())[0] != program:
                    pass
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)  # signals as a shell gives them
            finally:
                os._exit(125)
        for number in (life, *descriptors):
            os.close(number)
        reason = self._watch(alive)
        os.close(alive)
        if reason or not contained:
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not contained:
            self._clean(folder)
        return os.waitstatus_to_exitcode(status), reason

    def _watch(self, alive: int) -> str | None:
        """Wait for the program's end, the caller's order to kill it, or too much memory in total."""
        while True:
            ready, _, _ = select.select([alive, self.control], [], [], _WATCH)
            if alive in ready:
                return None
            if ready:
                return "killed" if self.control.recv(1) else "caller gone"
            if self._resident() > self.limits["AS"]:
                return "memory"

    def _resident(self) -> int:
        """Bytes of memory, without that of files, of the sandbox's processes or those of the programs' user."""
        total = 0
        for name in os.listdir("/proc") if self.level != "unsafe" else ():
            if name.isdigit() and int(name) not in (1, os.getpid()):
                with contextlib.suppress(OSError):
                    if self.level == "rlimits" and os.stat(f"/proc/{name}").st_uid != self.user:
                        continue
                    with open(f"/proc/{name}/status") as file:
                        sizes = dict(re.findall(r"(VmRSS|RssFile):\s*(\d+)", file.read()))
                    total += int(sizes.get("VmRSS", 0)) - int(sizes.get("RssFile", 0)) << 10
        return total

    def _clean(self, folder: str) -> None:
        """End and reap all processes of the programs' user, and remove what the program left where all may write."""
        if self.level == "rlimits" and os.fork() == 0:
            self._become_user()
            os.kill(-1, signal.SIGKILL)  # everything of this user but this process
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        left = [folder]
        for place in filter(os.path.isdir, _SHARED if self.level == "rlimits" else ()):
            for entry in os.scandir(place):
                with contextlib.suppress(OSError):  # others come and go meanwhile
                    left += [entry.path] * (entry.stat(follow_symlinks=False).st_uid == self.user)
        for path in left:
            try:
                os.rmdir(path)
            except OSError:  # a file, or a folder that is not empty
                subprocess.run(["rm", "-rf", path], stderr=subprocess.DEVNULL)

    def _program(self, given: int, *descriptors: int) -> NoReturn:
        """Be the program's own process: keep its descriptors alone, set the limits, give up every right, do the job. It
        alone reads the job, so that no later program finds tests in memory that it has from the jail."""
        with socket.socket(fileno=given) as source:
            [job] = Channel(source, largest=sys.maxsize).receive()
        for target, number in enumerate(descriptors):
            os.dup2(number, target + 100)
        for target in range(len(descriptors)):
            os.dup2(target + 100, target)
        os.closerange(len(descriptors), 4096)
        for name, value in {**self.limits, "CPU": int(job["seconds"]) + 2}.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            _, hard = resource.getrlimit(kind)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
        if self.user:
            self._become_user()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
        _call("capset", header, (ctypes.c_uint32 * 6)())
        _filter_calls()
        if job["role"] != "tests":
            prctl(_PR_SET_DUMPABLE, 1)  # its own /proc/self is its to read
        os.umask(0o077)
        if job["role"] == "script":
            inside.script(job["program"])
        channel = Channel(socket.socket(fileno=3))
        if job["role"] == "functions":
            inside.functions(channel, job["program"], job["prefix"])
        testing.run(channel, job, socket.socket(fileno=4) if job["role"] == "tests" else None)
        os._exit(0)

    def _become_user(self) -> None:
        os.setgroups([])
        os.setresgid(self.user, self.user, self.user)
        os.setresuid(self.user, self.user, self.user)


def _fork_contained() -> int:
    """Fork, as the first process of new namespaces: a second process for them costs milliseconds."""
    flags = ctypes.c_ulong(_CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | signal.SIGCHLD)
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    pid = libc.syscall(_MACHINES[os.uname().machine][2], flags, None, None, None, None)
    python.PyOS_AfterFork_Parent() if pid else python.PyOS_AfterFork_Child()
    if pid < 0:
        raise OSError(ctypes.get_errno(), f"clone: {os.strerror(ctypes.get_errno())}")
    return pid


def _mounts(size: int) -> None:
    flags = _MS_NOSUID | _MS_NODEV
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_PRIVATE | _MS_REC), None)
    options = f"size={size},nr_inodes=20000,mode=1777".encode()
    for place in (b"/tmp", b"/dev/shm"):
        _call("mount", b"tmpfs", place, b"tmpfs", ctypes.c_ulong(flags), options)
    _call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(flags | _MS_NOEXEC), None)


# The system calls that no judged program needs, with their numbers on the machines below. The last five make memory
# that no limit counts, and that outlives the program.
_DENIED = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280), "userfaultfd": (323, 282),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438), "memfd_create": (319, 279), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E, 56), "aarch64": (1, 0xC00000B7, 220)}  # column, architecture, clone
_CLONE3, _CLONE_NEWUSER = 435, 0x10000000
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def _filter_calls() -> None:
    """A seccomp filter: no namespaces of its own (they would lift the limits), no tracing, no mounts."""
    if os.uname().machine not in _MACHINES:
        return
    column, architecture, clone = _MACHINES[os.uname().machine]
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, _EPERM), (0x20, 0, 0, 0)]
    code += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, _EPERM)]  # the x32 numbers of the same calls
    code += [(0x15, 0, 1, _CLONE3), (0x06, 0, 0, _ENOSYS)]  # glibc falls back on clone
    for numbers in _DENIED.values():
        code += [(0x15, 0, 1, numbers[column]), (0x06, 0, 0, _EPERM)]
    code += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, _CLONE_NEWUSER), (0x06, 0, 0, _EPERM)]
    code += [(0x06, 0, 0, _ALLOW)]
    packed = b"".join(struct.pack("HBBI", *step) for step in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    prctl(_PR_SET_SECCOMP, 2, ctypes.create_string_buffer(program, len(program)))
