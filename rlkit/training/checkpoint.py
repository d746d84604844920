"""Checkpoints that are either whole or not there.

    checkpoints/step_000020/
        model/          a Hugging Face folder (full fine-tuning) or a peft adapter folder (LoRA)
        state.pt        optimizers, critic, KL coefficient, ledger, tasks drawn, evaluations
        manifest.json   SHA-256 of every other file, written last

A checkpoint is built in a hidden folder beside the others and renamed. A newest one whose files do not match its
manifest is passed over, and the caller is told. A run goes on from its own newest one, or from another run's.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_model

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.files import read_json, replacing, require_space
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import BEST, LOGS
from rlkit.seeds import file_hash

if TYPE_CHECKING:
    from rlkit.training.run import TrainingRun

MANIFEST = "manifest.json"


def folder_of(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step_{step:06d}"


def save(root: Path, step: int, write: Callable[[Path], None], keep: int) -> None:
    """Write a checkpoint through `write(folder)`, then drop those of later steps, which a run that went on from an
    earlier one has passed over, and all but the newest `keep`. A UserError where the folder cannot be written."""
    for leftover in root.glob(".step_*"):  # of processes that were killed: the run's lock keeps others out
        shutil.rmtree(leftover, ignore_errors=True)
    with replacing(folder_of(root, step)) as building:
        building.mkdir()
        write(building)
        files = [path for path in sorted(building.rglob("*")) if path.is_file()]
        manifest = {str(path.relative_to(building)): file_hash(path) for path in files}
        (building / MANIFEST).write_text(json.dumps(manifest))
    steps = checkpoint_steps(root)
    own = [s for s in steps if s <= step]
    for old in (s for s in steps if s not in own[-keep:]):
        shutil.rmtree(folder_of(root, old), ignore_errors=True)


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
        if not (folder / name).is_file() or file_hash(folder / name) != digest:
            return f"{name} is missing or does not match its hash"
    return None


def write(run: "TrainingRun", folder: Path) -> None:
    """The policy as a Hugging Face (or peft adapter) folder, and everything else that a run goes on from."""
    model: Any = run.policy.model
    model.save_pretrained(folder / "model")
    run.policy.tokenizer.save_pretrained(folder / "model")
    state = {"step": run.step, "evaluated": run.evaluated, "ledger": run.ledger.state_dict()}
    torch.save(state | {"feed": run.feed.state_dict()} | run.learning.state_dict(), folder / "state.pt")


def restore(run: "TrainingRun") -> None:
    """Go on from the newest whole checkpoint, or from `trainer.resume_from_path`. Raises UserError where that is none
    of this model, or where the disk has no room for the run's checkpoints."""
    trainer, root = run.config.trainer, run.store.checkpoints
    found = newest(root, run.warn)
    critic = run.learning.critic.trained if run.learning.critic else {}
    trained = [*run.learning.actor.trained.values(), *critic.values()]
    size = 1_000_000 + 3 * sum(p.numel() * p.element_size() for p in trained)  # weights and two moments
    require_space(run.store.folder, size * (trainer.max_actor_ckpt_to_keep + 1))
    if found is not None:
        _load(run, folder_of(root, found))
    elif (parent := parent_of(run.config)) is not None:
        _fork(run, *parent)
    run.store.truncate(run.step or -1)


def parent_of(config: RunConfig) -> tuple[Path, int] | None:
    """The checkpoint that `trainer.resume_from_path` names, and its step. Raises UserError where there is none, or no
    step is left to do."""
    path, steps = config.trainer.resume_from_path, config.trainer.total_training_steps
    if path is None:
        return None
    folder, key = Path(path).absolute(), f"trainer.resume_from_path is {path!r}"
    step = folder.name.removeprefix("step_")
    if not step.isdecimal() or not folder.is_dir():
        raise UserError(f"{key}, which is no checkpoint: give outputs/<study>/runs/<id>/checkpoints/step_<number>.")
    if int(step) >= steps:
        raise UserError(f"{key}, a checkpoint of step {int(step)}: raise trainer.total_training_steps = {steps}.")
    return folder, int(step)


def _fork(run: "TrainingRun", folder: Path, step: int) -> None:
    """Go on from a checkpoint of another run, whose steps until then become this run's."""
    parent, key = folder.parents[1], f"trainer.resume_from_path is {str(folder)!r}"
    if (wrong := problem(folder)) is not None:
        raise UserError(f"{key}, which is no whole checkpoint ({wrong}): give another one of {folder.parent}.")
    try:
        _load(run, folder)
    except (RuntimeError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
        raise UserError(
            f"{key}, a checkpoint of another model, adapter or critic: only other keys can change "
            f"({str(error).splitlines()[0]})."
        ) from error
    for name in (*LOGS, "evals.parquet"):
        if (parent / name).is_file():
            shutil.copyfile(parent / name, run.store.folder / name)
    kept = run.best(run.config.trainer.keep_best)
    if kept is not None and (best := folder_of(parent / BEST, kept)).is_dir():
        shutil.copytree(best, run.store.folder / BEST / best.name, dirs_exist_ok=True)
    evaluations = read_json(parent / "run.json").get("evaluations", {})
    run.store.update(parent={"run": parent.name, "step": step}, evaluations=evaluations)


def _load(run: "TrainingRun", folder: Path) -> None:
    model: Any = run.policy.model
    device = str(run.policy.device)
    if hasattr(model, "peft_config"):
        set_peft_model_state_dict(model, load_peft_weights(str(folder / "model"), device=device))
    else:
        load_model(model, folder / "model" / "model.safetensors", device=device)
    saved = torch.load(folder / "state.pt", map_location=device, weights_only=True)
    run.learning.load_state_dict(saved)
    run.step, run.evaluated, run.stale = saved["step"], saved["evaluated"], True
    run.ledger.load_state_dict(saved["ledger"])
    run.feed.load_state_dict(saved["feed"])
