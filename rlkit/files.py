"""Writing files so that a reader, or a crash, never meets half of one."""

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlkit.errors import UserError

_DISK_ERRORS = "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "ENOTDIR", "EEXIST"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path in `path`'s folder; when the block ends well it becomes `path` in one step.

    The content, a file or a folder, is flushed to disk before the rename, so after a crash `path` holds the old
    content (of a folder, or none) or the new. When the block raises, `path` is untouched and the temporary is gone.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}{path.suffix}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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
