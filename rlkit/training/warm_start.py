"""Warm starts: supervised steps on worked answers before reinforcement learning.

`fixed` and `matched` warm starts stand in for a ladder model's pretraining: the same tokens for every size, or steps
until every size has the same held-out pass@1, so that what a law sees afterwards is what reinforcement learning added.
`sft` trains any model on worked answers. All are deterministic on a CPU, go on where they were interrupted, and are
cached by content.
"""

import copy
import errno
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from rlkit.config import Optimizer, RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import content_hashes
from rlkit.errors import RunStopped, UserError
from rlkit.files import replacing
from rlkit.models.device import device_of
from rlkit.models.loading import Policy, load_policy, save_model
from rlkit.seeds import content_hash, derive
from rlkit.training.forward import text_batch
from rlkit.training.interrupt import Interrupt, Interrupted
from rlkit.training.learner import Passes, SupervisedTrainer
from rlkit.types import Batch, Task

CACHE = Path("data/models/warm")
FACTS = "warm_start.json"  # beside the weights, written last
VERSION = 2  # part of the cache key: raise it when the same config would give other weights
VALIDATION = 512  # tasks that `matched` stops on; none of them is in the held-out set
CHECK_EVERY = {"fixed": 50, "matched": 10, "sft": 10}  # steps between looks at the pass rate
KEEP_EVERY = 300.0  # seconds between states that a killed start goes on from


def worked_answer(task: Task) -> str:
    """What a correct response to this task says: its worked solution, or else the ground truth as text."""
    return str(task.extra_info.get("solution") or task.ground_truth)


def worked_batch(policy: Policy, tasks: Sequence[Task], limit: int = 0) -> Batch | None:
    """Tasks with their worked answers, ended as the model ends its turns; None where none is left.

    Args:
        limit: tokens of a prompt with its answer; longer ones are left out. 0 is no limit.
    """
    tokenizer, pairs = policy.tokenizer, []
    for task in tasks:
        answer = [*tokenizer.encode(worked_answer(task), add_special_tokens=False), tokenizer.eos_token_id]
        pairs.append((np.array(policy.encode(task.prompt)), np.array(answer)))
    pairs = [(p, a) for p, a in pairs if not limit or len(p) + len(a) <= limit]
    if not pairs:
        return None
    return text_batch([p for p, _ in pairs], [a for _, a in pairs], policy.pad_id, str(policy.device))


@dataclass(frozen=True)
class WarmStarted:
    """Where the weights are, and what it took: steps, tokens, FLOPs, CPU threads (on which the last bits depend), and
    the pass rate on the validation tasks; of `sft`, the mean probability of a token."""

    folder: Path
    steps: int
    tokens: int
    pass_rate: float
    flops: float = 0.0
    threads: int = 0


def warm_start(
    config: RunConfig, progress: Callable[[int, int, float], None] | None = None
) -> WarmStarted | None:
    """The warm-started model of a run, from the cache or trained now; None for a run without.

    `progress(step, steps, pass rate)` is called at every look.

    Raises:
        RunStopped: a matched warm start did not reach its target within `model.warm_start.steps`.
        UserError: there is nothing to train on, or the cache cannot be written.
        Interrupted: Ctrl-C came; the next call goes on from there.
    """
    folder = place(config)
    if folder is None:
        return None
    if not made(folder):
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            with FileLock(CACHE / f".{folder.name}.lock"):
                if not made(folder):
                    _train_into(folder, config, progress)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            raise UserError(
                f"The warm start of {config.model.path} is to be kept in {CACHE}, which cannot be written "
                f"({error.strerror}): make the folder writable, or work in one that is."
            ) from None
    return WarmStarted(folder, **json.loads((folder / FACTS).read_text()))


def place(config: RunConfig) -> Path | None:
    """Where the warm start of a run is kept once it is made; None for a run without."""
    kind = config.model.warm_start.kind
    if kind == "none" or (kind != "sft" and not config.model.path.startswith("ladder-")):
        return None
    return CACHE / f"{Path(config.model.path).name}-{cache_key(config)}"


def made(folder: Path) -> bool:
    """Whether a warm start is there, with all that is known of it."""
    facts = folder / FACTS
    return facts.exists() and "flops" in json.loads(facts.read_text() or "{}")


def to_make(config: RunConfig) -> Path | None:
    """`place`, where a run has a warm start that is still to be made."""
    folder = place(config)
    return None if folder is None or made(folder) else folder


def cache_key(config: RunConfig) -> str:
    """Hash of all that decides the weights, the held-out set included (it is kept out of the problems)."""
    content, held = config.model_dump(mode="json"), held_out(config)
    section = content["model"]["warm_start"]
    if section["sources"] is None:
        del section["sources"]
    parts = [content["model"]["path"], section, content["data"]["train"]]
    if config.model.warm_start.kind == "sft":
        stream = TaskStream(supervised(config, 0), held, side="sft")
        model = {k: v for k, v in content["model"].items() if k not in ("path", "warm_start")}
        parts += [model, content["data"], content_hashes(stream, held), _files(Path(config.model.path))]
    return content_hash([VERSION, *parts, [t.id for t in held]], 12)


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a model's files; none of a hub id."""
    if not folder.is_dir():
        return []
    stats = [(f.name, f.stat()) for f in sorted(folder.iterdir()) if f.suffix in (".json", ".safetensors")]
    return [(name, s.st_size, s.st_mtime_ns) for name, s in stats]


def supervised(config: RunConfig, seed: int) -> RunConfig:
    """The configuration of the stream that supervised steps draw from."""
    section = config.model.warm_start
    changes: dict[str, Any] = {"train_batch_size": section.batch_size, "order": "mixed", "stages": ()}
    if section.kind != "sft" or section.sources is not None:
        changes |= {"train_max_samples": -1, "sft_ratio": 0.0}
    if section.sources is not None:
        changes["train"] = section.sources
    data = config.data.model_copy(update=changes | {"max_epochs": 0})
    trainer = config.trainer.model_copy(update={"total_training_steps": section.steps})
    actor = config.actor.model_copy(update={"ppo_mini_batch_size": 0})
    return config.model_copy(update={"data": data, "trainer": trainer, "actor": actor, "seed": seed})


def validation_tasks(config: RunConfig, held: list[Task]) -> list[Task]:
    """Tasks to stop on: spread over the sources like the held-out set that results are reported on, and
    disjoint from it. Fewer than VALIDATION where a source is small."""
    reported, seed = {t.problem for t in held}, derive("warm start validation") % 2**31
    size = VALIDATION
    while True:
        section = config.evaluation.model_copy(update={"size": size, "seed": seed})
        try:
            chosen = held_out(config.model_copy(update={"evaluation": section}))
            return [t for t in chosen if t.problem not in reported]
        except UserError:
            if size < 2 * config.evaluation.size:
                raise
            size //= 2


def _train_into(folder: Path, config: RunConfig, progress: Callable[[int, int, float], None] | None) -> None:
    start = _WarmStart(config)
    partial = CACHE / f".{folder.name}.partial.pt"
    with Interrupt() as interrupt:
        interrupt.defer()
        facts = start.run(progress, partial, interrupt)
    with replacing(folder) as building:
        save_model(start.policy, building)
        (building / FACTS).write_text(json.dumps(facts))
    partial.unlink(missing_ok=True)


class _WarmStart:
    """A warm start being made."""

    def __init__(self, config: RunConfig) -> None:
        self.config, self.section = config, config.model.warm_start
        kind, steps, sft = self.section.kind, self.section.steps, self.section.kind == "sft"
        model = config.model if sft else config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"})
        device = device_of(config) if sft else "cpu"
        self.policy = load_policy(model, seed=self.section.seed, device=device)
        schedule = "constant" if kind == "matched" else "cosine"
        optim = Optimizer(lr=self.section.lr, lr_warmup_steps=min(20, steps // 4), lr_scheduler_type=schedule)
        self.trainer = SupervisedTrainer(
            self.policy, optim, steps, Passes(0, config.actor.pass_tokens(device == "cuda")),
            dtype=model.dtype, checkpointing=model.enable_gradient_checkpointing,
        )  # fmt: skip
        held, data = held_out(config), config.data
        stream = supervised(config, derive("warm start", self.section.seed))
        self.stream = TaskStream(stream, held, side="sft" if sft and data.sft_ratio else "rl")
        self.limit = data.max_prompt_length + data.max_response_length if sft else 0
        self.validation = None if sft else worked_batch(self.policy, validation_tasks(config, held))
        self.steps = self.tokens = 0
        self.rate, self.fine, self.snapshot = 0.0, False, None
        self._losses: list[float] = []

    def run(
        self, progress: Callable[[int, int, float], None] | None, partial: Path, interrupt: Interrupt
    ) -> dict[str, float]:
        """Train, from where `partial` says that an earlier call was; the facts of what it took."""
        section, matched, every = self.section, self.section.kind == "matched", CHECK_EVERY[self.section.kind]
        if partial.exists():
            self._load(torch.load(partial, map_location=self.policy.device, weights_only=True))
        due = time.monotonic() + KEEP_EVERY
        while self.steps < section.steps:
            if interrupt.requested or time.monotonic() > due:
                self._keep(partial)
                if interrupt.requested:
                    raise Interrupted("interrupted during the warm start")
                due = time.monotonic() + KEEP_EVERY
            if matched and not self.fine and self.steps % every == 0:
                self.snapshot = copy.deepcopy(self._state())
            self.steps += 1
            self._step()
            if not self.fine and self.steps % every and self.steps < section.steps:
                continue
            self.rate = self.pass_rate()
            if progress:
                progress(self.steps, section.steps, self.rate)
            if matched and self.rate >= section.target - section.tolerance / 2:
                if self.rate <= section.target + section.tolerance or self.fine:
                    break
                assert self.snapshot is not None  # overshot: look at every step
                self._load(self.snapshot)
                self.rate, self.fine = self.pass_rate(), True
        if matched and abs(self.rate - section.target) > section.tolerance:
            raise RunStopped(
                f"The warm start of {self.config.model.path} ended at pass@1 {self.rate:.3f}, not within "
                f"{section.tolerance} of model.warm_start.target {section.target}: raise model.warm_start.steps or "
                "change the target or the sources."
            )
        return {
            "steps": self.steps, "tokens": self.tokens, "pass_rate": self.rate, "flops": self.trainer.flops,
            "threads": torch.get_num_threads(),
        }  # fmt: skip

    def _step(self) -> None:
        batch = worked_batch(self.policy, self.stream.batch(self.steps), self.limit)
        if batch is None:
            raise UserError(
                f"No worked answer of step {self.steps} of the warm start fits data.max_prompt_length + "
                f"data.max_response_length = {self.limit} tokens: raise them."
            )
        torch.manual_seed(derive("sft", self.section.seed, self.steps))  # an adapter's dropout
        self.policy.model.train(self.section.kind == "sft" and self.config.model.lora_dropout > 0)
        self._losses.append(self.trainer.step(batch))
        self.policy.model.eval()
        if not math.isfinite(self._losses[-1]):
            raise RunStopped(
                f"The loss of the warm start is {self._losses[-1]} at step {self.steps}: lower model.warm_start.lr, "
                f"which is {self.section.lr:g}."
            )
        self.tokens += int(float(batch.mask.sum()) + batch.prompt_mask.sum())

    def pass_rate(self) -> float:
        """Mean probability of drawing the worked answer at temperature 1: pass@1 without sampling noise. Of `sft` the
        mean probability of a token, over the steps since the last look.

        Exact where one text alone is correct, as in the ladder's sources; a lower bound elsewhere.
        """
        if self.validation is None:
            recent, self._losses = self._losses, []
            return math.exp(-sum(recent) / len(recent)) if recent else self.rate
        return float(self.trainer.logprobs(self.validation).double().sum(-1).exp().mean())

    def _state(self) -> dict[str, Any]:
        return {"steps": self.steps, "tokens": self.tokens, "trainer": self.trainer.state_dict()}

    def _keep(self, partial: Path) -> None:
        """Write what a later call goes on from."""
        looks = {"rate": self.rate, "fine": self.fine, "snapshot": self.snapshot, "losses": self._losses}
        with replacing(partial) as building:
            torch.save(self._state() | looks, building)

    def _load(self, state: dict[str, Any]) -> None:
        self.steps, self.tokens = state["steps"], state["tokens"]
        self.trainer.load_state_dict(state["trainer"])
        if "fine" in state:
            self.rate, self.fine, self.snapshot = state["rate"], state["fine"], state["snapshot"]
            self._losses = state["losses"]
