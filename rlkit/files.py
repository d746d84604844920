"""Files, written so that a reader, or a crash, never meets half of one; and those that are missing or broken."""

import errno
import glob
import json
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from rlkit.errors import UserError, did_you_mean

LEFT = 3600.0  # seconds after which the temporary of a process that is gone is removed
_DISK_ERRORS = "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "ENOTDIR", "EEXIST"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path in `path`'s folder; when the block ends well it becomes `path` in one step.

    The content, a file or a folder, is flushed to disk before the rename, so after a crash `path` holds the old
    content (of a folder, or none) or the new. When the block raises, `path` is untouched and the temporary is gone; one
    of a process of this machine that was killed is removed by a write an hour later.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    path = Path(path)
    mine = f".{path.stem}.{socket.gethostname()}-"
    temporary = path.with_name(f"{mine}{os.getpid()}-{uuid.uuid4().hex[:8]}{path.suffix}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.glob(f"{glob.escape(mine)}*{glob.escape(path.suffix)}"):
            pid = other.name.removeprefix(mine).partition("-")[0]
            with suppress(FileNotFoundError):  # its writer has just ended
                old = other.stat().st_mtime < time.time() - LEFT  # another machine may have this name, too
                if old and pid.isdigit() and not psutil.pid_exists(int(pid)):
                    _remove(other)
        try:
            yield temporary
            for written in (temporary, *temporary.rglob("*")):
                _sync(written)
            if temporary.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            os.replace(temporary, path)
            _sync(path.parent)
        finally:
            _remove(temporary)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole text file in one step (see `replacing`)."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def existing(path: str | Path, advice: str = "") -> Path:
    """The path of a file that is there. Raises UserError where it is not, with the nearest name, or else the advice."""
    path = Path(path)
    if not path.is_file():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.*")])
        raise UserError(f"There is no file {path}.{near or advice}")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when it is missing or broken."""
    content = None
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def require_space(folder: str | Path, needed: int) -> None:
    """Make `folder`; raise a UserError unless it can be written and its disk has `needed` bytes free."""
    folder = Path(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"The disk of {folder} has {free / 1e6:,.0f} MB free and {needed / 1e6:,.0f} MB are needed: "
            "free some space, or choose another folder (--root)."
        )


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turn a full disk, missing rights and the like into one sentence that names `path`."""
    try:
        yield
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _DISK_ERRORS:
            raise
        raise UserError(
            f"Cannot write {path}: {error.strerror}. Make it writable and the disk not full, "
            "or choose another folder (--root)."
        ) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
