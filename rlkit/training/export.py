"""Trained policies as things others can use: opened for serving and evaluation, written as a Hugging Face folder."""

import json
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peft import load_peft_weights, set_peft_model_state_dict

from rlkit.config import Model, RunConfig, load
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.errors import UserError
from rlkit.files import replacing, write_text
from rlkit.models import loading
from rlkit.models.loading import Policy
from rlkit.results.store import BEST, read_json
from rlkit.training import checkpoint
from rlkit.training.warm_start import place, warm_start

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
    """The policy of a run's folder (its newest whole checkpoint), of the run's `best` folder (`trainer.keep_best`), of
    a checkpoint's model folder, or of another folder, a ladder size or a packaged model.

    Raises:
        UserError: a run without a whole checkpoint, or nothing that can be loaded.
    """
    folder = Path(path)
    run = next((f for f in (folder, *folder.parents) if (f / "config.yaml").is_file()), None)
    if run is not None and folder in (run, run / BEST):
        kept = run / "checkpoints" if folder == run else folder
        if (step := checkpoint.newest(kept, warnings.warn)) is None:
            raise UserError(
                f"{folder} has no whole checkpoint yet: let the run reach one (trainer.save_freq)."
            )
        return _open_run(run, checkpoint.folder_of(kept, step) / "model", device)
    if run is not None and folder.name == "model" and folder.parent.name.startswith("step_"):
        return _open_run(run, folder, device)
    section = Model.model_validate({"path": str(path)})
    kinds = {name: environments.parse(c) for name, c in read_json(folder / ENVIRONMENTS_FILE).items()}
    return SavedPolicy(loading.load_policy(section, device=device), kinds)


def write_environments(folder: Path, acted_in: Iterable[BaseEnvironment]) -> None:
    """Keep the environments beside a saved model, for `rlkit serve`."""
    contents = {e.kind_name: e.model_dump(mode="json") for e in acted_in}
    write_text(folder / ENVIRONMENTS_FILE, json.dumps(contents, indent=2))


def _open_run(run: Path, model: Path, device: str) -> SavedPolicy:
    """The policy of a checkpoint's model folder."""
    config = load(run / "config.yaml")
    step = int(model.parent.name.removeprefix("step_"))
    facts = {**read_json(run / "run.json"), "step": step, "max_turn_length": config.rollout.max_turn_length}
    acted_in: list[BaseEnvironment] = [s.environment for s in config.data.train if s.kind == "environment"]
    found = {e.kind_name: e for e in acted_in}
    if not config.model.lora_rank:
        return SavedPolicy(loading.load_policy(config.model, path=model, device=device), found, facts)
    base = _base_of(config, facts.get("warm_start") or {})
    policy = loading.load_policy(config.model, path=base, seed=config.seed, device=device)
    set_peft_model_state_dict(policy.model, load_peft_weights(str(model), device=device))
    return SavedPolicy(policy, found, facts, model)


def _base_of(config: RunConfig, recorded: Mapping[str, Any]) -> Path | None:
    """The warm start that a run's adapter was trained over, as run.json has it. On another kind of device the same
    config makes another one. Raises UserError where it is not here."""
    own, name = place(config), recorded.get("name")
    if own is None or name in (None, own.name):
        started = warm_start(config)
        return started.folder if started else None
    kept = own.with_name(name)
    if not kept.is_dir():
        raise UserError(
            f"The run's adapter was trained over the warm start {kept}, which is not here: copy that folder from where "
            "the run was trained, or export the run there."
        )
    return kept


def export(path: str | Path, folder: str | Path) -> Path:
    """Write a run's policy as a Hugging Face folder that transformers and `vllm serve` load.

    The adapter of a LoRA run is merged, and kept beside it in `adapter/`. README.md states the run's numbers.
    The folder appears whole or not at all.

    Raises:
        UserError: `folder` exists and is not empty, or `path` cannot be opened.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty: give a new folder.")
    saved = open_saved(path)
    with replacing(folder) as building:
        loading.save_model(saved.policy, building)
        if saved.adapter is not None:
            shutil.copytree(saved.adapter, building / "adapter")
        if saved.environments:
            write_environments(building, saved.environments.values())
        (building / "README.md").write_text(model_card(str(path), saved))
    return folder


def model_card(name: str, saved: SavedPolicy) -> str:
    """What was trained, on what, and how well it did, from the run's own record."""
    facts = saved.facts
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
    lines = ["---", "library_name: transformers", "tags: [reinforcement-learning, rlkit]", "---", ""]
    lines += [f"# {facts.get('id') or Path(name).name}", "", "Trained with rlkit.", "", "| | |", "|---|---|"]
    lines += [f"| {k} | {v} |" for k, v in rows.items() if v is not None]
    if evaluations := facts.get("evaluations"):
        lines += [
            "",
            "## Held-out pass@1",
            "",
            "| step | pass@1 | 95 % interval | tasks |",
            "|---|---|---|---|",
        ]
    for step, e in sorted((evaluations or {}).items(), key=lambda pair: int(pair[0])):
        lines.append(f"| {step} | {e['pass@1']:.3f} | {e['low']:.3f} to {e['high']:.3f} | {e['tasks']} |")
    return "\n".join([*lines, ""])
