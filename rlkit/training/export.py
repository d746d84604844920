"""Trained policies as things others can use: opened for serving, written as a Hugging Face folder."""

import json
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.environments.base import BaseEnvironment, environments
from rlkit.errors import UserError
from rlkit.files import replacing, write_text
from rlkit.results.store import BEST, read_json

if TYPE_CHECKING:
    from rlkit.models.loading import Policy

ENVIRONMENTS_FILE = "environments.json"  # beside a saved model: what it was trained in, with all options


@dataclass(frozen=True)
class SavedPolicy:
    """A policy with the environments that it was trained in, what its run recorded (empty for a plain
    folder), and its adapter's folder where it has one."""

    policy: "Policy"
    environments: dict[str, BaseEnvironment]
    facts: dict[str, Any] = field(default_factory=dict)
    adapter: Path | None = None


def open_saved(path: str | Path, device: str = "cpu") -> SavedPolicy:
    """The policy of a run (its newest whole checkpoint), of a run's `best` folder (`trainer.keep_best`), or of a model
    folder, ladder size or packaged model.

    Raises:
        UserError: a run without a whole checkpoint, or nothing that can be loaded.
    """
    from rlkit.config import Model
    from rlkit.models.loading import load_policy

    folder = Path(path)
    for run, kept in ((folder, folder / "checkpoints"), (folder.parent, folder)):
        if (run / "config.yaml").exists() and (run == folder or folder.name == BEST):
            return _open_run(run, kept, device)
    return SavedPolicy(
        load_policy(Model.model_validate({"path": str(path)}), device=device), _environments_of(folder)
    )


def write_environments(folder: Path, acted_in: Iterable[BaseEnvironment]) -> None:
    """Keep the environments beside a saved model, for `rlkit serve`."""
    contents = {e.kind_name: e.model_dump(mode="json") for e in acted_in}
    write_text(folder / ENVIRONMENTS_FILE, json.dumps(contents, indent=2))


def _environments_of(folder: Path) -> dict[str, BaseEnvironment]:
    contents = read_json(folder / ENVIRONMENTS_FILE)
    return {name: environments.parse(content) for name, content in contents.items()}


def _open_run(folder: Path, kept: Path, device: str) -> SavedPolicy:
    """The policy of the newest whole checkpoint that is `kept` of a run."""
    from rlkit.config import load
    from rlkit.models.loading import load_policy
    from rlkit.training import checkpoint
    from rlkit.training.warm_start import warm_start

    config = load(folder / "config.yaml")
    step = checkpoint.newest(kept, warnings.warn)
    if step is None:
        raise UserError(f"{folder} has no whole checkpoint yet: let the run reach one (trainer.save_freq).")
    model = checkpoint.folder_of(kept, step) / "model"
    facts = {
        **read_json(folder / "run.json"),
        "step": step,
        "max_turn_length": config.rollout.max_turn_length,
    }
    acted_in: list[BaseEnvironment] = [s.environment for s in config.data.train if s.kind == "environment"]
    found = {e.kind_name: e for e in acted_in}
    if not config.model.lora_rank:
        return SavedPolicy(load_policy(config.model, path=model, device=device), found, facts)
    from peft import load_peft_weights, set_peft_model_state_dict

    started = warm_start(config)
    policy = load_policy(
        config.model, path=started.folder if started else None, seed=config.seed, device=device
    )
    set_peft_model_state_dict(policy.model, load_peft_weights(str(model), device=device))
    return SavedPolicy(policy, found, facts, model)


def export(path: str | Path, folder: str | Path) -> Path:
    """Write a run's policy as a Hugging Face folder that transformers and `vllm serve` load.

    The adapter of a LoRA run is merged, and kept beside it in `adapter/`. README.md states the run's numbers.
    The folder appears whole or not at all.

    Raises:
        UserError: `folder` exists and is not empty, or `path` cannot be opened.
    """
    from rlkit.models.loading import save_model

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
        (building / "README.md").write_text(model_card(str(path), saved))
    return folder


def model_card(name: str, saved: SavedPolicy) -> str:
    """What was trained, on what, and how well it did, from the run's own record."""
    facts = saved.facts
    head = "---\nlibrary_name: transformers\ntags: [reinforcement-learning, rlkit]\n---\n"
    lines = [head, f"# {facts.get('id') or Path(name).name}", "", "Trained with rlkit.", ""]
    rows = {
        "steps": facts.get("step"),
        "parameters": facts.get("parameters_total"),
        "parameters without embeddings": facts.get("parameters_non_embedding"),
        "parameters trained": facts.get("parameters_trainable"),
        "environments": ", ".join(saved.environments) or None,
        "scorer version": facts.get("scorer_version"),
        "held-out set": facts.get("held_out_hash"),
        "git commit": (facts.get("git") or {}).get("commit"),
    }
    lines += ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items() if v is not None), ""]
    evaluations = facts.get("evaluations") or {}
    if evaluations:
        lines += ["## Held-out pass@1", "", "| step | pass@1 | 95 % interval | tasks |", "|---|---|---|---|"]
        for step in sorted(evaluations, key=int):
            e = evaluations[step]
            lines.append(f"| {step} | {e['pass@1']:.3f} | {e['low']:.3f} to {e['high']:.3f} | {e['tasks']} |")
        lines.append("")
    return "\n".join(lines)
