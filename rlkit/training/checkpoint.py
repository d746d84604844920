"""Checkpoints that are either whole or not there.

    checkpoints/step_000020/
        model/          a Hugging Face folder (full fine-tuning) or a peft adapter folder (LoRA)
        state.pt        optimizers, critic, KL coefficient, ledger, data position
        manifest.json   size and SHA-256 of every other file, written last

A checkpoint is built in a hidden folder beside the others, synced to disk and renamed. A newest one whose
files do not match its manifest is passed over, and the caller is told.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlkit.errors import UserError

MANIFEST = "manifest.json"


def folder_of(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step_{step:06d}"


def save(root: Path, step: int, write: Callable[[Path], None], keep: int) -> Path:
    """Write a checkpoint through `write(folder)`, then drop all but the newest `keep`.

    Raises:
        UserError: the disk is full or the folder cannot be written; earlier checkpoints are untouched.
    """
    final, building = folder_of(root, step), root / f".building-{step:06d}-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(root)
        building.mkdir()
        write(building)
        manifest = {
            str(p.relative_to(building)): _digest(p) for p in sorted(building.rglob("*")) if p.is_file()
        }
        (building / MANIFEST).write_text(json.dumps(manifest))
        for path in building.rglob("*"):
            _sync(path)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(building, final)
        _sync(root)
    except OSError as error:
        shutil.rmtree(building, ignore_errors=True)
        raise UserError(
            f"The checkpoint of step {step} could not be written to {root}: {error.strerror or error}."
        ) from error
    for old in steps(root)[:-keep]:
        shutil.rmtree(folder_of(root, old), ignore_errors=True)
    return final


def steps(root: Path) -> list[int]:
    """Steps that have a checkpoint, ascending; whole or not."""
    return sorted(int(p.name.removeprefix("step_")) for p in root.glob("step_*") if p.name[5:].isdigit())


def newest(root: Path, warn: Callable[[str], None]) -> int | None:
    """The newest step whose checkpoint is whole; `warn` hears of each broken one that is passed over."""
    for step in reversed(steps(root)):
        broken = problem(folder_of(root, step))
        if broken is None:
            return step
        warn(f"The checkpoint of step {step} is broken ({broken}); falling back to the one before.")
    return None


def problem(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return "no readable manifest"
    for name, digest in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _digest(path) != digest:
            return f"{name} does not match its hash"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(root: Path) -> None:
    """Half-built folders of processes that were killed; the run's lock keeps other writers out."""
    for path in root.glob(".building-*"):
        shutil.rmtree(path, ignore_errors=True)
