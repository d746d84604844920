"""Warm starts: supervised steps on worked answers before reinforcement learning.

`fixed` stands in for a ladder model's pretraining, with the same tokens for every size; `sft` trains any model. Both
train on the run's device, are deterministic on a CPU, go on where they were ended, and are cached by content.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from tqdm.auto import tqdm

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.errors import RunStopped, UserError
from rlkit.files import disk_errors, read_json, replacing
from rlkit.models.loading import Policy, device_of, load_policy, save_model
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import RunStore
from rlkit.seeds import derive
from rlkit.training import checkpoint
from rlkit.training.interrupt import Interrupt, Interrupted
from rlkit.training.learner import SupervisedTrainer, text_batch
from rlkit.training.warm_cache import FACTS, made, place, supervised
from rlkit.types import Batch, Task

KEEP_EVERY = 300.0  # seconds between states that a killed start goes on from
LOOK_EVERY = 10  # steps between those that are shown
Progress = Callable[[int, int, float], None]


def worked_batch(policy: Policy, tasks: Sequence[Task], limit: int = 0) -> Batch | None:
    """Tasks with their worked answers and an end of turn, of up to `limit` tokens (0: any); None where none is left."""
    prompts, end = policy.encode_all([task.prompt for task in tasks]), policy.tokenizer.eos_token_id
    answers = policy.tokenizer([task.worked_answer for task in tasks], add_special_tokens=False).input_ids
    pairs = [(np.array(p), np.array([*a, end])) for p, a in zip(prompts, answers, strict=True)]
    pairs = [(p, a) for p, a in pairs if not limit or len(p) + len(a) <= limit]
    chosen = [p for p, _ in pairs], [a for _, a in pairs]
    return text_batch(*chosen, policy.pad_id, policy.device) if pairs else None


class WarmStarted(NamedTuple):
    """Where the weights are, and what it took: steps, tokens, flops and the CPU threads, on which last bits depend."""

    folder: Path
    facts: dict[str, Any]


def warm_started(config: RunConfig, store: RunStore, progress: bool) -> WarmStarted | None:
    """A run's warm start, told in run.json and on a bar; a run that goes on has the one that it was trained over."""
    recorded = store.info
    if not checkpoint_steps(store.checkpoints):
        parent = checkpoint.parent_of(config)
        recorded = read_json(parent[0].parents[1] / "run.json") if parent else {}
    name, hidden = f"warm start {config.model.path}", not progress
    with tqdm(desc=name, unit="step", dynamic_ncols=True, leave=False, delay=0.1, disable=hidden) as bar:

        def show(step: int, steps: int, loss: float) -> None:
            store.update(phase=f"warm start {step}/{steps}")
            bar.total = steps
            bar.set_postfix({"loss": f"{loss:.3f}"}, refresh=False)
            bar.update(step - bar.n)

        return warm_start(config, show, recorded)


def warm_start(
    config: RunConfig, progress: Progress | None = None, recorded: Mapping[str, Any] = MappingProxyType({})
) -> WarmStarted | None:
    """The warm-started model of a run, from the cache or trained now; None for a run without. `progress` is called with
    (step, steps, loss) every LOOK_EVERY steps. Where `recorded`, a run.json, names a warm start that weights were
    trained over, none is made anew: on another kind of device the same config makes another one.

    Raises:
        RunStopped: the loss is no longer finite.
        UserError: there is nothing to train on, the cache cannot be written, or the recorded one is not there.
        Interrupted: Ctrl-C came; the next call goes on from there.
    """
    folder = place(config)
    if folder is None:
        return None
    name = recorded.get("warm_start", {}).get("name", folder.name)
    same_model = name.rpartition("-")[0] == folder.name.rpartition("-")[0]
    if same_model and name != folder.name and not made(folder := folder.with_name(name)):
        told = f"The run was trained over the warm start {folder}, which is not here"
        raise UserError(f"{told}: copy that folder from where the run was trained, or go on there.")
    if not made(folder):
        with disk_errors(folder.parent):
            _make(config, folder, progress)
    return WarmStarted(folder, read_json(folder / FACTS))


def _make(config: RunConfig, folder: Path, progress: Progress | None) -> None:
    """Train the warm start and keep it in `folder`, unless another process has done so meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"), Interrupt() as interrupt:
        if made(folder):
            return
        interrupt.defer()
        partial = folder.parent / f".{folder.name}.partial.pt"
        policy, facts = _trained(config, progress, partial, interrupt)
        with replacing(folder) as building:
            save_model(policy, building)
            (building / FACTS).write_text(json.dumps(facts))
        partial.unlink(missing_ok=True)


def _trained(
    config: RunConfig, progress: Progress | None, partial: Path, interrupt: Interrupt
) -> tuple[Policy, dict[str, Any]]:
    """The trained policy, from the state in `partial` that an earlier call left, and the facts of what it took."""
    section, data, sft = config.model.warm_start, config.data, config.model.warm_start.kind == "sft"
    own = supervised(config, derive("warm start", section.seed))
    model, policy = own.model, load_policy(own.model, seed=section.seed, device=device_of(config))
    trainer = SupervisedTrainer(policy, own)
    stream = TaskStream(own, held_out(config), side="sft" if sft and data.sft_ratio else "rl")
    limit = data.max_prompt_length + data.max_response_length if sft else 0
    done, tokens, kept = 0, 0, time.monotonic()
    if partial.exists():
        state = torch.load(partial, map_location=policy.device, weights_only=True)
        done, tokens = state["steps"], state["tokens"]
        trainer.load_state_dict(state["trainer"])
        trainer.ledger.flops["sft"] = state["trainer"]["flops"]
    for step in range(done + 1, section.steps + 1):
        batch = worked_batch(policy, stream.batch(step), limit)
        if batch is None:
            raise UserError(
                f"No answer of step {step} fits data.max_prompt_length + max_response_length = {limit}: raise them."
            )
        torch.manual_seed(derive("sft", section.seed, step))  # an adapter's dropout
        policy.model.train(model.lora_rank > 0 and model.lora_dropout > 0)
        loss = trainer.step(batch, batch.mask)
        policy.model.eval()
        if not math.isfinite(loss):
            raise RunStopped(f"Step {step} has loss {loss}: lower model.warm_start.lr = {section.lr:g}.")
        tokens += int(float(batch.mask.sum()) + batch.prompt_mask.sum())
        if progress and (step % LOOK_EVERY == 0 or step == section.steps):
            progress(step, section.steps, loss)
        if interrupt.requested or time.monotonic() > kept + KEEP_EVERY:
            kept = time.monotonic()
            state = trainer.state_dict() | {"flops": trainer.ledger.flops["sft"]}
            with replacing(partial) as building:
                torch.save({"steps": step, "tokens": tokens, "trainer": state}, building)
        if interrupt.requested:
            raise Interrupted("interrupted during the warm start")
    facts = {"steps": section.steps, "tokens": tokens, "flops": trainer.ledger.flops["sft"]}
    return policy, facts | {"threads": torch.get_num_threads()}
