"""Offline training of a model on episodes, weighted by their rewards."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rlkit.config import Model, Optimizer, Positive, RunConfig, Section
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.environments.chat import ChatTokens
from rlkit.environments.rollout import Limits, environment_task, play_episodes
from rlkit.environments.trajectory import Trajectory
from rlkit.errors import UserError
from rlkit.export import ENVIRONMENT_FILE
from rlkit.files import write_text
from rlkit.models.decoder import Decoder
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import Policy, device_of, load_policy, save_model
from rlkit.samplers.torch import TorchSampler
from rlkit.seeds import generator
from rlkit.training.forward import micro_batches, text_batch, token_logprobs
from rlkit.training.optimizer import Stepper

# Tokens of a forward pass: a CPU is fastest where its tiles fit the caches.
PASS_TOKENS = {"cpu": 4096, "cuda": 16_384}
LARGEST_WEIGHT = 20.0  # of a step under `advantage_weighted`, as in Peng et al. 2019
SMALL_ADAPTER = {
    "lora_rank": 8,
    "lora_alpha": 16,
    "target_modules": ("q_proj", "v_proj"),
}  # 0.11 % of Qwen2.5-0.5B


class AgenticConfig(Section):
    """How episodes become a loss."""

    method: Literal["reward_weighted", "advantage_weighted", "filtered"] = "reward_weighted"
    """reward_weighted: every token of an episode weighs exp(return / (temperature · std of returns)).
    advantage_weighted: every step weighs exp(advantage / (temperature · std)), its advantage being the return
    from it on minus the mean of that over all episodes at the same step (AWR, Peng et al., arXiv 1910.00177).
    filtered: successful episodes alone, equally (filtered behaviour cloning)."""
    temperature: float = 1.0
    """Softness of the weights: towards 0 only the best count, large values are plain behaviour cloning."""
    epochs: Positive = 3
    """Passes over the episodes."""
    batch_size: Positive = 64
    """Episodes an optimizer step."""
    optim: Optimizer = Optimizer(lr=2e-3, lr_warmup_steps=20, lr_scheduler_type="cosine")
    max_length: Positive = 2048
    """Longest episode in tokens, prompt included; longer ones are left out and counted."""
    max_response_length: Positive = 512
    """Tokens of an episode that the trained model plays."""
    max_turn_length: Positive = 64
    """Tokens of one of its turns."""


@dataclass(frozen=True)
class Example:
    """One episode as ids: (S,) prompt, (T,) response, (T,) weights, zero on observations."""

    prompt_ids: np.ndarray
    response_ids: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class TrainingResult:
    """What training did: the loss of each step, parameters, episodes used and left out, seconds."""

    losses: list[float]
    first_loss: float
    last_loss: float
    parameters_trained: int
    parameters_total: int
    episodes: int
    left_out: int
    seconds: float

    @property
    def loss_reduction(self) -> float:
        """Share of the first loss that is gone; both are measured on the same episodes, before and after."""
        return 1 - self.last_loss / self.first_loss


class AgenticTrainer:
    """Fine-tunes a model on trajectories: setup_model, prepare_training_data, train, test_inference.

    Args:
        model: a ladder size, packaged model, folder or hub id; or a whole `Model` section. A name alone gets
            a small LoRA adapter (rank 8 on q_proj and v_proj), except a ladder model, which trains whole.
        environment: in which the trained model is tested, or its name; default the one that the trajectories
            were played in.
        config: AgenticConfig.
        seed: of the adapter, of random ladder weights and of the order of episodes.
        device: auto is the GPU where there is one.
    """

    def __init__(
        self,
        model: str | Model,
        environment: BaseEnvironment | str | None = None,
        config: AgenticConfig | None = None,
        *,
        seed: int = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        if isinstance(model, str):
            model = Model(path=model, **({} if model.startswith("ladder-") else SMALL_ADAPTER))
        named = isinstance(environment, str)
        self.model = model
        self._environment: BaseEnvironment | None = environments.parse(environment) if named else environment
        self.config, self.seed = config or AgenticConfig(), seed
        self.device = device_of(RunConfig.model_validate({"trainer": {"device": device}}))
        self._policy: Policy | None = None
        self.left_out = 0

    @property
    def environment(self) -> BaseEnvironment:
        """Where the model acts. Raises UserError before one is known."""
        if self._environment is None:
            raise UserError(
                "AgenticTrainer knows no environment yet: give it one, or prepare trajectories that name theirs."
            )
        return self._environment

    def setup_model(self) -> Policy:
        """Load the model with its adapter; the first of the four steps, and harmless to repeat."""
        if self._policy is None:
            self._policy = load_policy(self.model, seed=self.seed, device=self.device)
        return self._policy

    def prepare_training_data(self, trajectories: Sequence[Trajectory]) -> list[Example]:
        """Episodes as ids with a weight on every action token; the mean weight of an action token is 1.

        Raises:
            UserError: no episode, none that fits or succeeded, or every return is zero.
        """
        if not trajectories or not any(len(t) for t in trajectories):
            raise UserError("There are no trajectories to train on: collect some with run_episodes.")
        if self._environment is None and trajectories[0].options:
            self._environment = environments.parse(dict(trajectories[0].options))
        weights = step_weights(trajectories, self.config)
        chat = ChatTokens(self.setup_model())
        pairs = [(t, w) for t, w in zip(trajectories, weights, strict=True) if w.any()]
        examples = [encode(chat, t, w) for t, w in pairs]
        fitting = [e for e in examples if len(e.prompt_ids) + len(e.response_ids) <= self.config.max_length]
        self.left_out = len(trajectories) - len(fitting)
        if not fitting:
            raise UserError(f"No trajectory fits max_length {self.config.max_length}: raise it.")
        total = sum(float(e.weights.sum()) for e in fitting) / sum(
            int((e.weights > 0).sum()) for e in fitting
        )
        return [replace(e, weights=e.weights / total) for e in fitting]

    def train(
        self, dataset: Sequence[Example], on_step: Callable[[int, int, float], Any] | None = None
    ) -> TrainingResult:
        """Minimise the weighted negative log-likelihood of action tokens. `on_step(step, steps, loss)`."""
        policy, config, began = self.setup_model(), self.config, time.perf_counter()
        counts = parameter_counts(policy.model)
        per_epoch = -(-len(dataset) // config.batch_size)
        steps = config.epochs * per_epoch
        stepper = Stepper(policy.model, config.optim, counts["parameters_non_embedding"], steps)
        probe = [
            dataset[int(i)] for i in generator("agentic probe", self.seed).permutation(len(dataset))[:256]
        ]
        first = self.loss(probe)
        losses: list[float] = []
        policy.model.train(self.model.lora_dropout > 0)
        for epoch in range(config.epochs):
            order = generator("agentic", self.seed, epoch).permutation(len(dataset))
            for start in range(0, len(dataset), config.batch_size):
                batch = [dataset[int(i)] for i in order[start : start + config.batch_size]]
                losses.append(self._loss(batch, backward=True))
                stepper.step()
                if on_step:
                    on_step(len(losses), steps, losses[-1])
        policy.model.eval()
        return TrainingResult(
            losses,
            first,
            self.loss(probe),
            counts["parameters_trainable"],
            counts["parameters_total"],
            len(dataset),
            self.left_out,
            time.perf_counter() - began,
        )

    @torch.no_grad()
    def loss(self, dataset: Sequence[Example]) -> float:
        """Weighted negative log-likelihood an action token, in nats."""
        return self._loss(dataset, backward=False)

    def _loss(self, examples: Sequence[Example], backward: bool) -> float:
        policy = self.setup_model()
        decoder = Decoder(policy.model)
        ordered = sorted(examples, key=lambda e: len(e.response_ids))  # short ones share a forward pass
        batch = text_batch(
            [e.prompt_ids for e in ordered], [e.response_ids for e in ordered], policy.pad_id, self.device
        )
        width = batch.response_ids.shape[1]
        padded = np.stack([np.pad(e.weights, (0, width - len(e.weights))) for e in ordered])
        weights = torch.from_numpy(padded).float().to(self.device)  # (B, T)
        tokens, total = float((weights > 0).sum()), 0.0
        rows, tokens_a_pass = torch.arange(len(ordered), device=self.device), PASS_TOKENS[policy.device.type]
        for part in micro_batches(batch, rows, 0, tokens_a_pass):
            logprobs, _ = token_logprobs(decoder, part)
            loss = -(logprobs * weights[part.rows, : part.width]).sum() / tokens
            if backward:
                loss.backward()
            total += float(loss.detach())
        return total

    def test_inference(
        self, problems: Iterable[str | Mapping[str, Any]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Trajectory]:
        """The model's own episodes on `problems`, greedy unless a temperature is given."""
        policy = self.setup_model()
        tasks = [environment_task(self.environment, p) for p in problems]
        sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
        limits = Limits(self.config.max_response_length, self.config.max_turn_length, temperature)
        return [e.trajectory() for e in play_episodes(tasks, sampler, policy, limits, seed=seed)]

    def save(self, folder: str | Path) -> Path:
        """A plain Hugging Face folder with the adapter merged in, and the environment beside it (for `rlkit
        serve`)."""
        folder = Path(folder)
        save_model(self.setup_model(), folder)
        write_text(folder / ENVIRONMENT_FILE, json.dumps(self.environment.model_dump(mode="json"), indent=2))
        return folder


def encode(chat: ChatTokens, trajectory: Trajectory, weights: np.ndarray) -> Example:
    """A trajectory's ids, those that a rollout of the same texts appends, and weights on its actions."""
    stop = int(chat.tokenizer.eos_token_id)
    pieces: list[np.ndarray] = []
    spread: list[np.ndarray] = []
    for i, (step, weight) in enumerate(zip(trajectory.transitions, weights, strict=True)):
        action = np.asarray([*chat.tokenizer.encode(step.text, add_special_tokens=False), stop], np.int64)
        pieces.append(action)
        spread.append(np.full(len(action), weight))
        if i + 1 < len(trajectory):
            pieces.append(chat.follow(step.next_state, stop))
            spread.append(np.zeros(len(pieces[-1])))
    return Example(chat.prompt(trajectory.messages), np.concatenate(pieces), np.concatenate(spread))


def step_weights(trajectories: Sequence[Trajectory], config: AgenticConfig) -> list[np.ndarray]:
    """The weight of every step of every episode, by `config.method`; not yet normalised."""
    returns = np.array([t.total_reward for t in trajectories])
    lengths = [len(t) for t in trajectories]
    if config.method == "filtered":
        if not any(t.success for t in trajectories):
            raise UserError(
                "None of the trajectories succeeded, so method 'filtered' leaves nothing: use another."
            )
        return [np.full(n, float(t.success)) for n, t in zip(lengths, trajectories, strict=True)]
    if not returns.any():
        raise UserError(
            "Every trajectory has the return 0, so there is nothing to weight by: check the rewards."
        )
    if config.method == "reward_weighted":
        scale = config.temperature * returns.std() or 1.0
        return [
            np.full(n, np.exp((r - returns.max()) / scale)) for n, r in zip(lengths, returns, strict=True)
        ]
    return _advantage_weights(trajectories, config.temperature)


def _advantage_weights(trajectories: Sequence[Trajectory], temperature: float) -> list[np.ndarray]:
    to_go = [np.cumsum([t.reward for t in e.transitions][::-1])[::-1] for e in trajectories]
    longest = max(map(len, to_go))
    baseline = [float(np.mean([g[k] for g in to_go if len(g) > k])) for k in range(longest)]
    advantages = [g - baseline[: len(g)] for g in to_go]
    scale = temperature * float(np.concatenate(advantages).std()) or 1.0
    return [np.minimum(np.exp(a / scale), LARGEST_WEIGHT) for a in advantages]
