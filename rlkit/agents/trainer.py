"""Offline training of a model on episodes, weighted by their rewards."""

import math
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from rlkit.agents.agents import each
from rlkit.config import Model, Optimizer, RunConfig, Section
from rlkit.config.model import is_ladder
from rlkit.environments.base import BaseEnvironment, Problem, as_environment
from rlkit.environments.episode import Trajectory
from rlkit.environments.rollout import ChatTokens, Limits, environment_task, play_episodes
from rlkit.errors import UserError
from rlkit.models.loading import Policy, device_of, load_policy, save_model
from rlkit.models.prompts import encode_text
from rlkit.params import validate
from rlkit.samplers.torch import TorchSampler
from rlkit.seeds import generator
from rlkit.training.export import write_environments
from rlkit.training.learner import SupervisedTrainer, text_batch
from rlkit.types import Batch

# Tokens of a forward pass: a CPU is fastest where its tiles fit the caches.
PASS_TOKENS = {"cpu": 4096, "cuda": 16_384}


class AgenticConfig(Section):
    """How episodes become a loss."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Every action token of an episode weighs exp(return / (temperature · std of returns)): towards 0 only the best
    count, large values are plain behaviour cloning."""
    epochs: PositiveInt = 4
    """Passes over the episodes."""
    batch_size: PositiveInt | None = None
    """Episodes an optimizer step. None: 32, or an eighth of them where that is fewer."""
    optim: Optimizer | None = None
    """None: cosine from 4e-3 where all weights train and 1e-3 for an adapter, after a warm-up of a fifth of the steps,
    at most 20."""
    max_length: PositiveInt = 2048
    """Longest episode in tokens, prompt included; longer ones are left out and counted."""
    max_response_length: PositiveInt = 512
    """Tokens of an episode that the trained model plays."""
    max_turn_length: PositiveInt = 64
    """Tokens of one of its turns."""


@dataclass(frozen=True)
class Example:
    """One episode as ids: (S,) prompt, (T,) response, (T,) weights, zero on observations."""

    prompt_ids: np.ndarray
    response_ids: np.ndarray
    weights: np.ndarray


def encode(chat: ChatTokens, trajectory: Trajectory, weight: float = 1.0) -> Example:
    """A trajectory's ids, those that a rollout of the same texts appends, and `weight` on its actions."""
    stop = int(chat.tokenizer.eos_token_id)
    pieces: list[np.ndarray] = []
    for step in trajectory.transitions:
        pieces.append(np.asarray([*encode_text(chat.tokenizer, step.text), stop], np.int64))
        pieces.append(chat.follow(step.next_state, stop))
    pieces.pop()  # nothing follows the last action
    weights = [np.full(len(ids), 0.0 if i % 2 else weight) for i, ids in enumerate(pieces)]
    return Example(chat.prompt(trajectory.messages), np.concatenate(pieces), np.concatenate(weights))


@dataclass(frozen=True)
class TrainingResult:
    """The loss of each step, that on the same episodes before and after, and the seconds. Awaited, it is the losses."""

    losses: list[float]
    first_loss: float
    last_loss: float
    seconds: float

    @property
    def loss_reduction(self) -> float:
        """Share of the first loss that is gone."""
        return 1 - self.last_loss / self.first_loss

    def __await__(self) -> Generator[None, None, list[float]]:
        yield from ()
        return self.losses


class AgenticTrainer:
    """Fine-tunes a model on trajectories: setup_model, prepare_training_data, train, test_inference.

    Args:
        model: a ladder size, packaged model, folder or hub id; or a whole `Model` section; or a policy that is loaded.
            A name alone gets a small LoRA adapter (rank 8 on q_proj and v_proj), over weights in bfloat16 on a GPU,
            except a ladder model, which trains whole.
        environment: in which it is tested, or its name; default the one that the trajectories were played in.
        seed: of the adapter, of random ladder weights and of the order of episodes.
        device: auto is the GPU where there is one.
    """

    def __init__(
        self,
        model: str | Path | Model | Policy,
        environment: BaseEnvironment | str | None = None,
        config: AgenticConfig | None = None,
        *,
        seed: int = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        if not isinstance(model, str | Path | Model | Policy):
            raise UserError(f"The model is {model!r}: give a name, a folder, a Model section or a Policy.")
        self.device = device_of(validate(RunConfig, {"trainer": {"device": device}}))
        self._policy = model if isinstance(model, Policy) else None
        if isinstance(model, Policy):  # of whose section the adapter counts in training
            adapter = getattr(model.model, "peft_config", {}).get("default")
            self.model = Model(lora_rank=adapter.r, lora_dropout=adapter.lora_dropout) if adapter else Model()
        else:
            self.model = model if isinstance(model, Model) else named_model(str(model), self.device)
        self.environment = None if environment is None else as_environment(environment)
        self.config: AgenticConfig = validate(AgenticConfig, config or {})
        self.seed, self.left_out = seed, 0

    @property
    def policy(self) -> Policy:
        """The model with its adapter and tokenizer, loaded when it is first needed."""
        if self._policy is None:
            self._policy = load_policy(self.model, seed=self.seed, device=self.device)
        return self._policy

    def setup_model(self) -> tuple[torch.nn.Module, Any, torch.device]:
        """Model, tokenizer and device; the first of the four steps, and harmless to repeat."""
        return self.policy.model, self.policy.tokenizer, self.policy.device

    def prepare_training_data(self, trajectories: Sequence[Trajectory]) -> list[Example]:
        """Episodes as ids with a weight on every action token; the mean weight of an action token is 1.

        Raises UserError: no episode, none that fits, or only returns of zero.
        """
        check_items(trajectories, Trajectory, "trajectories", "run_episodes")
        if not any(map(len, trajectories)):
            raise UserError("There are no trajectories to train on with a step in them: collect longer ones.")
        self.environment = self.environment or trajectories[0].world
        returns = np.array([t.total_reward for t in trajectories])
        if not returns.any():
            raise UserError("Every trajectory has the return 0, so none is better: mend the rewards.")
        weights = np.exp((returns - returns.max()) / (self.config.temperature * returns.std() or 1.0))
        chat = ChatTokens(self.policy)
        examples = [encode(chat, t, w) for t, w in zip(trajectories, weights, strict=True) if w and len(t)]
        fitting = [e for e in examples if len(e.prompt_ids) + len(e.response_ids) <= self.config.max_length]
        self.left_out = len(trajectories) - len(fitting)
        if not fitting:
            raise UserError(f"No trajectory fits max_length {self.config.max_length}: raise it.")
        total, tokens = (sum(part(e.weights) for e in fitting) for part in (np.sum, np.count_nonzero))
        return [replace(e, weights=e.weights / (total / tokens)) for e in fitting]

    def train(self, dataset: Sequence[Example]) -> TrainingResult:
        """Minimise the weighted negative log-likelihood of action tokens.

        Raises:
            UserError: no examples, or a loss that is no longer a finite number.
            RunStopped: the GPU's memory does not hold a single episode.
        """
        check_items(dataset, Example, "examples", "prepare_training_data")
        policy, config, began = self.policy, self.config, time.perf_counter()
        size = config.batch_size or min(32, max(1, len(dataset) // 8))
        steps = config.epochs * -(-len(dataset) // size)
        trainer = self._trainer(steps)
        drawn = generator("agentic probe", self.seed).permutation(len(dataset))[:256]
        probe = [dataset[int(i)] for i in drawn]
        first = trainer.loss(*self._batch(probe))
        losses: list[float] = []
        policy.model.train(self.model.lora_dropout > 0)
        torch.manual_seed(self.seed)  # of dropout
        for epoch in range(config.epochs):
            order = generator("agentic", self.seed, epoch).permutation(len(dataset))
            for start in range(0, len(dataset), size):
                batch = [dataset[int(i)] for i in order[start : start + size]]
                losses.append(trainer.step(*self._batch(batch)))
                if not math.isfinite(losses[-1]):
                    raise UserError(f"The loss is {losses[-1]} at step {len(losses)}: lower optim.lr.")
        policy.model.eval()
        last = trainer.loss(*self._batch(probe))
        return TrainingResult(losses, first, last, time.perf_counter() - began)

    def _trainer(self, steps: int) -> SupervisedTrainer:
        rate, warmup = 1e-3 if self.model.lora_rank else 4e-3, min(20, steps // 5)
        usual = Optimizer(lr=rate, lr_warmup_steps=warmup, lr_scheduler_type="cosine")
        optim, checkpointing = self.config.optim or usual, self.model.enable_gradient_checkpointing
        config = RunConfig.model_validate({
            "model": {"enable_gradient_checkpointing": checkpointing}, "trainer": {"total_training_steps": steps},
            "actor": {"optim": optim, "micro_batch_tokens": PASS_TOKENS[self.device]},
        })  # fmt: skip
        trainer = SupervisedTrainer(self.policy, config)
        trainer.limit = "config.max_length"
        return trainer

    def _batch(self, examples: Sequence[Example]) -> tuple[Batch, torch.Tensor]:
        """Episodes as a batch, short ones first so that they share a forward pass, and (B, T) weights."""
        ordered = sorted(examples, key=lambda e: len(e.response_ids))
        ids = [e.prompt_ids for e in ordered], [e.response_ids for e in ordered]
        batch = text_batch(*ids, self.policy.pad_id, self.device)
        weights = torch.from_numpy(np.concatenate([e.weights for e in ordered])).float().to(self.device)
        return batch, torch.zeros_like(batch.mask).masked_scatter(batch.attention > 0, weights)

    def test_inference(
        self, problems: str | Problem | Iterable[str | Problem], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Trajectory]:
        """The model's own episodes on `problems`, greedy unless a temperature is given."""
        if self.environment is None:
            raise UserError("AgenticTrainer knows no environment yet: give it one, or prepare trajectories.")
        if temperature < 0:
            raise UserError(f"temperature is {temperature}: give 0 for greedy episodes, or more.")
        policy, tasks = self.policy, [environment_task(self.environment, p) for p in each(problems)]
        sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
        limits = Limits(self.config.max_response_length, self.config.max_turn_length, temperature)
        options: Any = {"environment": self.environment, "prompt_limit": self.config.max_length}
        played = play_episodes(tasks, sampler, policy, limits, seed=seed, **options)
        return [p.episode.trajectory() for p in played]

    def save(self, folder: str | Path) -> Path:
        """A plain Hugging Face folder, the adapter merged in, and the environment beside it for `rlkit serve`."""
        save_model(self.policy, Path(folder))
        if self.environment is not None and hasattr(self.environment, "kind"):
            write_environments(Path(folder), [self.environment], self.config.max_turn_length)
        return Path(folder)


def check_items(given: Any, kind: type, noun: str, source: str) -> None:
    """Raises UserError unless `given` is a list of `kind` alone, with at least one item."""
    if not (isinstance(given, list | tuple) and given and all(isinstance(item, kind) for item in given)):
        raise UserError(f"There are no {noun} to train on in {str(given)[:100]}: {source} returns a list of them.")


def named_model(path: str, device: str) -> Model:
    """The `Model` section that a name alone stands for."""
    if is_ladder(path):
        return Model(path=path)
    small: dict[str, Any] = {"lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.1}  # 0.11 % of Qwen2.5-0.5B
    dtype = "bfloat16" if device == "cuda" else "float32"
    return Model(path=path, dtype=dtype, target_modules=("q_proj", "v_proj"), **small)
