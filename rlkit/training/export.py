"""Saved policies: opened, evaluated on any tasks, written as a Hugging Face folder."""

import copy
import json
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from peft import load_peft_weights, set_peft_model_state_dict

from rlkit.config import Model, RewardConfig, RunConfig, load
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.environments.rollout import Limits
from rlkit.errors import UserError
from rlkit.evaluation import EvaluationResult, measure
from rlkit.files import read_json, replacing, write_text
from rlkit.models.loading import Policy, device_of, load_policy, save_model
from rlkit.models.prompts import set_template_defaults
from rlkit.params import validate
from rlkit.results.store import BEST
from rlkit.rewards import Router
from rlkit.samplers.torch import TorchSampler
from rlkit.training import checkpoint
from rlkit.training.warm_start import warm_start
from rlkit.types import Task

ENVIRONMENTS_FILE = "environments.json"  # beside a saved model: what it was trained in, with all options
TURN = "max_turn_length"  # among them: tokens of a turn, in training


@dataclass(frozen=True)
class SavedPolicy:
    """A policy, the environments that it was trained in, tokens of a turn there (0: not known), and its adapter's
    folder if any."""

    policy: Policy
    environments: dict[str, BaseEnvironment]
    max_turn_length: int = 0
    adapter: Path | None = None


def open_saved(path: str | Path, device: str = "cpu") -> SavedPolicy:
    """The policy of a run's folder (its newest whole checkpoint), its `best` folder, a checkpoint's model folder, or
    another folder, a ladder size or a packaged model. Raises UserError where nothing can be loaded."""
    folder = Path(path)
    best = folder.name == BEST
    if ((folder.parent if best else folder) / "config.yaml").is_file():
        kept = folder if best else folder / "checkpoints"
        if (step := checkpoint.newest(kept, warnings.warn)) is None:
            raise UserError(f"{folder} has no whole checkpoint yet: go on until trainer.save_freq steps.")
        folder = checkpoint.folder_of(kept, step) / "model"
    run = next((f for f in folder.parents if (f / "config.yaml").is_file()), None)
    if run is not None and folder.name == "model" and folder.parent.name.startswith("step_"):
        return _open_run(run, folder, device)
    known = read_json(folder / ENVIRONMENTS_FILE)
    turn = known.pop(TURN, 0)
    kinds = {name: environments.parse(content) for name, content in known.items()}
    return SavedPolicy(load_policy(Model(path=str(path)), device=device), kinds, turn)


def _open_run(run: Path, model: Path, device: str) -> SavedPolicy:
    """The policy of a checkpoint's model folder."""
    config = load(run / "config.yaml")
    turn = config.rollout.max_turn_length
    found = {s.environment.kind_name: s.environment for s in config.data.train if s.kind == "environment"}
    if not config.model.lora_rank:
        return SavedPolicy(load_policy(config.model, path=model, device=device), found, turn)
    started = warm_start(config, recorded=read_json(run / "run.json"))
    policy = load_policy(config.model, path=started and started.folder, seed=config.seed, device=device)
    set_peft_model_state_dict(policy.model, load_peft_weights(str(model), device=device))
    return SavedPolicy(policy, found, turn, model)


def evaluate(
    model: Any, tasks: Sequence[Task], n: int = 4, *, temperature: float = 1.0, top_p: float = 1.0,
    max_tokens: int = 256, seed: int = 0, pass_at: Sequence[int] = (1,),
    apply_chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> EvaluationResult:  # fmt: skip
    """Sample `n` responses to each task and grade them.

    Args:
        model: what `open_saved` opens, a hub id, or a loaded Policy. A path is loaded onto the GPU where there is one,
            in the precision that its run trained in, or else in float32.
        temperature: 0 is greedy; then n must be 1.
        max_tokens: longest response, or longest episode for environment tasks.
        pass_at: the k of pass@k; none above n.
        apply_chat_template_kwargs: variables of the chat template beside a run's own, as {"enable_thinking": False}.

    Raises:
        UserError: no tasks, a number that cannot be, a name that no variable can have, a model that cannot be loaded.
    """
    if not tasks:
        raise UserError("There are no tasks to evaluate on.")
    variables = dict(apply_chat_template_kwargs)
    samples = {"n": n, "temperature": temperature, "top_p": top_p, "pass_at": pass_at, "size": len(tasks)}
    data = {"apply_chat_template_kwargs": variables, "max_response_length": max_tokens}
    config = validate(RunConfig, {"data": data, "evaluation": samples})
    policy = model if isinstance(model, Policy) else open_saved(model, device_of(config)).policy
    if variables:
        policy = replace(policy, tokenizer=copy.deepcopy(policy.tokenizer))  # a caller's own stays as it is
        set_template_defaults(policy.tokenizer, variables)
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    limits = Limits(max_tokens, 0, temperature, top_p)
    with Router(RewardConfig()) as router:
        return measure(policy, sampler, router, tasks, config.evaluation, limits=limits, seed=seed)


def write_environments(folder: Path, acted_in: Iterable[BaseEnvironment], max_turn_length: int) -> None:
    """Keep the environments, and the tokens of a turn, beside a saved model, for `rlkit serve`."""
    contents = {e.kind_name: e.model_dump(mode="json") for e in acted_in} | {TURN: max_turn_length}
    write_text(folder / ENVIRONMENTS_FILE, json.dumps(contents, indent=2))


def export(path: str | Path, folder: str | Path) -> Path:
    """Write a run's policy as a Hugging Face folder that transformers and `vllm serve` load. A LoRA run's adapter is
    merged, and kept in `adapter/`, too. Raises UserError where `path` does not open, `folder` is in it or not empty."""
    folder = Path(folder)
    if Path(path).is_dir() and folder.resolve().is_relative_to(Path(path).resolve()):
        raise UserError(f"{folder} lies in {path}, which is exported: give a folder outside of it.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty: give a new folder.")
    saved = open_saved(path)
    with replacing(folder) as building:
        save_model(saved.policy, building)
        if saved.adapter is not None:
            shutil.copytree(saved.adapter, building / "adapter")
        if saved.environments:
            write_environments(building, saved.environments.values(), saved.max_turn_length)
    return folder
