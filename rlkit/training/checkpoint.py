"""Checkpoints that are either whole or not there.

    checkpoints/step_000020/
        model/          a Hugging Face folder (full fine-tuning) or a peft adapter folder (LoRA)
        state.pt        optimizers, critic, KL coefficient, ledger, tasks drawn, evaluations
        manifest.json   SHA-256 of every other file, written last

A checkpoint is built in a hidden folder beside the others and renamed. A newest one whose files do not match its
manifest is passed over, and the caller is told.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file

from rlkit.files import replacing
from rlkit.results.progress import checkpoint_steps

MANIFEST = "manifest.json"


def folder_of(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step_{step:06d}"


def save(root: Path, step: int, write: Callable[[Path], None], keep: int) -> Path:
    """Write a checkpoint through `write(folder)`, then drop those of later steps, which a run that went on from an
    earlier one has passed over, and of the others all but the newest `keep`. Raises UserError where the folder cannot
    be written; earlier checkpoints are untouched."""
    final = folder_of(root, step)
    for leftover in root.glob(".step_*"):  # of processes that were killed: the run's lock keeps others out
        shutil.rmtree(leftover, ignore_errors=True)
    with replacing(final) as building:
        building.mkdir()
        write(building)
        files = [path for path in sorted(building.rglob("*")) if path.is_file()]
        manifest = {str(path.relative_to(building)): _digest(path) for path in files}
        (building / MANIFEST).write_text(json.dumps(manifest))
    steps = checkpoint_steps(root)
    own = [s for s in steps if s <= step]
    for old in (s for s in steps if s not in own[-keep:]):
        shutil.rmtree(folder_of(root, old), ignore_errors=True)
    return final


def newest(root: Path, warn: Callable[[str], None]) -> int | None:
    """The newest step whose checkpoint is whole; `warn` hears of each broken one that is passed over."""
    for step in reversed(checkpoint_steps(root)):
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
        if not (folder / name).is_file():
            return f"{name} is missing"
        if _digest(folder / name) != digest:
            return f"{name} does not match its hash"
    return None


def write(folder: Path, policy: Any, state: Mapping[str, Any]) -> None:
    """A policy as a Hugging Face (or peft adapter) folder, and everything else that a run goes on from."""
    policy.model.save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    torch.save(dict(state), folder / "state.pt")


def load(folder: Path, policy: Any) -> dict[str, Any]:
    """Give a policy the weights that `write` saved; returns the state that was saved with them."""
    model, device = policy.model, str(policy.device)
    if hasattr(model, "peft_config"):
        set_peft_model_state_dict(model, load_peft_weights(str(folder / "model"), device=device))
    else:
        weights = load_file(folder / "model" / "model.safetensors", device=device)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        if unexpected or not set(missing) <= set(getattr(model, "_tied_weights_keys", None) or {}):
            raise RuntimeError(f"{folder} is of another model: missing {missing}, unexpected {unexpected}")
        model.tie_weights()
    return torch.load(folder / "state.pt", map_location=device, weights_only=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
