"""The warm start: supervised steps on generated problems that stand in for pretraining.

`fixed` gives every size the same tokens. `matched` stops every size at the same held-out pass@1, so that what
a law sees afterwards is what reinforcement learning added. Both are deterministic and cached by content.
"""

import copy
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from tqdm.auto import tqdm

from rlkit.config import Optimizer, RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.errors import RunStopped, UserError
from rlkit.models.decoder import Decoder
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import Policy, load_policy, save_model
from rlkit.models.prompts import encode_text, set_template_defaults
from rlkit.seeds import content_hash, derive
from rlkit.store import RunStore
from rlkit.training.forward import micro_batches, text_batch, token_logprobs
from rlkit.training.optimizer import Stepper
from rlkit.types import Batch, Task

CACHE = Path("data/models/warm")
FACTS = "warm_start.json"  # beside the weights, written last
VERSION = 3  # part of the cache key: raise it when the same config would give other weights
VALIDATION = 512  # tasks that `matched` stops on; none of them is in the held-out set
CHECK_EVERY = {"fixed": 50, "matched": 10}  # steps between looks at the pass rate


@dataclass(frozen=True)
class WarmStarted:
    """Where the weights are, and what it took: steps, tokens, pass rate on the validation tasks."""

    folder: Path
    steps: int
    tokens: int
    pass_rate: float


def warm_start(
    config: RunConfig, progress: Callable[[int, int, float], None] | None = None
) -> WarmStarted | None:
    """The warm-started model of a ladder run, from the cache or trained now; None for other models.

    `progress(step, steps, pass rate)` is called at every look.

    Raises:
        RunStopped: a matched warm start did not reach its target within `model.warm_start.steps`.
    """
    folder = place(config)
    if folder is None:
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / f".{folder.name}.lock"):
        if not (folder / FACTS).exists():
            _train_into(folder, config, progress)
    facts = json.loads((folder / FACTS).read_text())
    return WarmStarted(folder, facts["steps"], facts["tokens"], facts["pass_rate"])


def place(config: RunConfig) -> Path | None:
    """Where the warm start of a ladder run is kept once it is made; None for other models."""
    if config.model.warm_start.kind == "none" or not config.model.path.startswith("ladder-"):
        return None
    return CACHE / f"{config.model.path}-{cache_key(config)}"


def to_make(config: RunConfig) -> Path | None:
    """`place`, where a run has a warm start that is still to be made."""
    folder = place(config)
    return None if folder is None or (folder / FACTS).exists() else folder


def progress_shown(config: RunConfig, store: RunStore, show_bar: bool) -> Callable[[int, int, float], None]:
    """The `progress` of a run's warm start: told in run.json, at most once a second, and with `show_bar` on a bar."""
    bar: Any = None
    written = -math.inf

    def show(step: int, steps: int, rate: float) -> None:
        nonlocal bar, written
        if (now := time.monotonic()) - written >= 1:
            store.update(phase=f"warm start {step}/{steps}")
            written = now
        if bar is None:
            bar = tqdm(
                desc=f"warm start {config.model.path}", unit="step", dynamic_ncols=True, leave=False,
                disable=not show_bar,
            )  # fmt: skip
        bar.total = steps
        bar.set_postfix({"pass@1": f"{rate:.3f}"}, refresh=False)
        bar.update(step - bar.n)

    return show


def cache_key(config: RunConfig) -> str:
    """Hash of all that decides the weights, the held-out set included (it is kept out of the problems)."""
    content = config.model_dump(mode="json")
    parts = [content["model"]["path"], content["model"]["warm_start"], content["data"]["train"]]
    parts += [config.data.apply_chat_template_kwargs] if config.data.apply_chat_template_kwargs else []
    return content_hash([VERSION, *parts, [t.id for t in held_out(config)]], 12)


def _train_into(folder: Path, config: RunConfig, progress) -> None:
    section = config.model.warm_start
    model = config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"})
    policy = load_policy(model, seed=section.seed)
    set_template_defaults(policy.tokenizer, config.data.apply_chat_template_kwargs)
    facts = _Trainer(policy, config).run(progress)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        target = Path(temporary) / "model"
        save_model(policy, target)
        (target / FACTS).write_text(json.dumps(facts))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(target, folder)


class _Trainer:
    """Supervised training of one ladder model on its config's sources."""

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        self.policy, self.config, self.section = policy, config, config.model.warm_start
        self.decoder = Decoder(policy.model)
        kind, steps = self.section.kind, self.section.steps
        optim = Optimizer(
            lr=self.section.lr,
            lr_warmup_steps=min(20, steps // 4),
            lr_scheduler_type="cosine" if kind == "fixed" else "constant",
        )
        self.stepper = Stepper(
            policy.model, optim, parameter_counts(policy.model)["parameters_non_embedding"], steps
        )
        self.stepper.step_count = 1  # a warm-up of 20 steps has 20 rates above 0
        held = held_out(config)
        self.validation = self._examples(validation_tasks(config, held))
        seed = derive("warm start", self.section.seed)
        self.stream = TaskStream(_supervised_stream(config, seed), held)
        self.tokens = 0

    def run(self, progress) -> dict[str, float]:
        step, rate, snapshot, fine = 0, 0.0, None, False
        matched, every = self.section.kind == "matched", CHECK_EVERY[self.section.kind]
        while step < self.section.steps:
            if matched and not fine and step % every == 0:
                snapshot = (
                    step,
                    self.tokens,
                    copy.deepcopy(self.policy.model.state_dict()),
                    self._optimizer_state(),
                )
            step += 1
            self._step(step)
            if not fine and step % every and step < self.section.steps:
                continue
            rate = self.pass_rate()
            if progress:
                progress(step, self.section.steps, rate)
            if matched and rate >= self.section.target - self.section.tolerance / 2:
                if rate <= self.section.target + self.section.tolerance or fine:
                    break
                step, rate, fine = (
                    self._rewind(snapshot),
                    self.pass_rate(),
                    True,
                )  # overshot: look at every step
        self._check(rate)
        return {"steps": step, "tokens": self.tokens, "pass_rate": rate}

    def _check(self, rate: float) -> None:
        target, tolerance = self.section.target, self.section.tolerance
        if self.section.kind == "matched" and abs(rate - target) > tolerance:
            raise RunStopped(
                f"The warm start of {self.config.model.path} ended at pass@1 {rate:.3f}, not within {tolerance} of "
                f"model.warm_start.target {target}: raise model.warm_start.steps or change the target or the sources."
            )

    def _optimizer_state(self) -> dict:
        return copy.deepcopy(self.stepper.state_dict())

    def _rewind(self, snapshot) -> int:
        step, self.tokens, weights, optimizer = snapshot
        self.policy.model.load_state_dict(weights)
        self.stepper.load_state_dict(optimizer)
        return step

    def _step(self, step: int) -> None:
        batch = self._examples(self.stream.batch(step))
        rows = torch.arange(len(batch))
        total = float(batch.mask.sum())
        for part in micro_batches(batch, rows, 0, self.config.actor.pass_tokens(False)):
            logprobs, _ = token_logprobs(self.decoder, part)
            (-logprobs.sum() / total).backward()
        self.stepper.step()
        self.tokens += int(total + batch.prompt_mask.sum())

    @torch.no_grad()
    def pass_rate(self) -> float:
        """Mean probability of drawing the worked answer at temperature 1: pass@1 without sampling noise.

        Exact where one text alone is correct, as in the ladder's sources; a lower bound elsewhere.
        """
        total = 0.0
        for part in micro_batches(
            self.validation,
            torch.arange(len(self.validation)),
            0,
            self.config.actor.pass_tokens(False),
        ):
            logprobs, _ = token_logprobs(self.decoder, part)
            total += float(logprobs.double().sum(-1).exp().sum())
        return total / len(self.validation)

    def _examples(self, tasks: list[Task]) -> Batch:
        stop = self.policy.tokenizer.eos_token_id
        prompts = [np.array(self.policy.encode(t.prompt)) for t in tasks]
        answers = [np.array([*encode_text(self.policy.tokenizer, worked_answer(t)), stop]) for t in tasks]
        return text_batch(prompts, answers, self.policy.pad_id)


def worked_answer(task: Task) -> str:
    """What a correct response to this task says: its worked solution, or else the ground truth as text."""
    solution = task.extra_info.get("solution")
    return str(solution) if solution else str(task.ground_truth)


def validation_tasks(config: RunConfig, held: list[Task]) -> list[Task]:
    """Tasks to stop on: spread over the sources like the held-out set that results are reported on, and
    disjoint from it. Fewer than VALIDATION where a source is small."""
    reported, seed = {t.problem for t in held}, derive("warm start validation") % 2**31
    size = VALIDATION
    while True:
        section = config.evaluation.model_copy(update={"size": size, "seed": seed})
        try:
            chosen = held_out(config.model_copy(update={"evaluation": section}))
        except UserError:
            if size < 2 * config.evaluation.size:
                raise
            size //= 2
        else:
            return [t for t in chosen if t.problem not in reported]


def _supervised_stream(config: RunConfig, seed: int) -> RunConfig:
    section = config.model.warm_start
    data = config.data.model_copy(
        update={
            "train_batch_size": section.batch_size,
            "order": "mixed",
            "train_max_samples": -1,
            "sft_ratio": 0.0,
        }
    )
    trainer = config.trainer.model_copy(update={"total_training_steps": section.steps})
    actor = config.actor.model_copy(update={"ppo_mini_batch_size": 0})
    return config.model_copy(update={"data": data, "trainer": trainer, "actor": actor, "seed": seed})
