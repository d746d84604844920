"""Trained policies as things others can use: opened for serving and evaluation, written as a Hugging Face folder."""

import json
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peft import load_peft_weights, set_peft_model_state_dict

from rlkit.config import Model, load
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.errors import UserError
from rlkit.files import replacing, write_text
from rlkit.models.loading import Policy, load_policy, save_model
from rlkit.results.store import BEST, read_json
from rlkit.training import checkpoint
from rlkit.training.warm_start import warm_start

ENVIRONMENTS_FILE = "environments.json"  # beside a saved model: what it was trained in, with all options


@dataclass(frozen=True)
class SavedPolicy:
    """A policy with the environments that it was trained in, what its run recorded (empty for a plain folder), and its
    adapter's folder where it has one."""

    policy: Policy
    environments: dict[str, BaseEnvironment]
    facts: dict[str, Any] = field(default_factory=dict)
    adapter: Path | None = None


def open_saved(path: str | Path, device: str = "cpu") -> SavedPolicy:
    """The policy of a run's folder (its newest whole checkpoint), of its `best` folder (`trainer.keep_best`), of a
    checkpoint's model folder, or of another folder, a ladder size or a packaged model.

    Raises:
        UserError: a run without a whole checkpoint, or nothing that can be loaded.
    """
    folder = Path(path)
    if (folder / "config.yaml").is_file() or (
        folder.name == BEST and (folder.parent / "config.yaml").is_file()
    ):
        kept = folder if folder.name == BEST else folder / "checkpoints"
        if (step := checkpoint.newest(kept, warnings.warn)) is None:
            raise UserError(
                f"{folder} has no whole checkpoint yet: let the run reach one (trainer.save_freq)."
            )
        folder = checkpoint.folder_of(kept, step) / "model"
    run = next((f for f in folder.parents if (f / "config.yaml").is_file()), None)
    if run is not None and folder.name == "model" and folder.parent.name.startswith("step_"):
        return _open_run(run, folder, device)
    section = Model.model_validate({"path": str(path)})
    kinds = {name: environments.parse(c) for name, c in read_json(folder / ENVIRONMENTS_FILE).items()}
    return SavedPolicy(load_policy(section, device=device), kinds)


def _open_run(run: Path, model: Path, device: str) -> SavedPolicy:
    """The policy of a checkpoint's model folder."""
    config, facts = load(run / "config.yaml"), read_json(run / "run.json")
    facts |= {
        "step": int(model.parent.name.removeprefix("step_")),
        "max_turn_length": config.rollout.max_turn_length,
    }
    acted_in: list[BaseEnvironment] = [s.environment for s in config.data.train if s.kind == "environment"]
    found = {e.kind_name: e for e in acted_in}
    if not config.model.lora_rank:
        return SavedPolicy(load_policy(config.model, path=model, device=device), found, facts)
    started = warm_start(config, recorded=facts)
    policy = load_policy(config.model, path=started and started.folder, seed=config.seed, device=device)
    set_peft_model_state_dict(policy.model, load_peft_weights(str(model), device=device))
    return SavedPolicy(policy, found, facts, model)


def write_environments(folder: Path, acted_in: Iterable[BaseEnvironment]) -> None:
    """Keep the environments beside a saved model, for `rlkit serve`."""
    contents = {e.kind_name: e.model_dump(mode="json") for e in acted_in}
    write_text(folder / ENVIRONMENTS_FILE, json.dumps(contents, indent=2))


def export(path: str | Path, folder: str | Path) -> Path:
    """Write a run's policy as a Hugging Face folder that transformers and `vllm serve` load.

    The adapter of a LoRA run is merged, and kept beside it in `adapter/`. The folder appears whole or not at all.

    Raises:
        UserError: `folder` exists and is not empty, or `path` cannot be opened.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty: give a new folder.")
    saved = open_saved(path)
    with replacing(folder) as building:
        save_model(saved.policy, building)
        if saved.adapter is not None:
            shutil.copytree(saved.adapter, building / "adapter")
        if saved.environments:
            write_environments(building, saved.environments.values())
    return folder
