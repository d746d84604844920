"""Whether a run fits on a device, how long its steps take, and what would fit if it does not."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.compute import Shape
from rlkit.config import RunConfig, load
from rlkit.models.shapes import shape_of
from rlkit.params import override, validate
from rlkit.samplers import chosen
from rlkit.sizing.devices import GIB, Device, device_named
from rlkit.sizing.estimate import Estimate, StepTime, estimate, step_time, trains_on_gpu
from rlkit.sizing.memory import Lengths, Memory, Setting, memory_of, room, sized

WORTH = 0.95  # of a step's seconds: what a larger micro-batch must save to be told
SHOWN = 0.001  # parts below this share of the peak are not shown
CHECKPOINTING, LORA = {"model.enable_gradient_checkpointing": True}, {"model.lora_rank": 32}
BFLOAT16, FEWER = {"model.dtype": "bfloat16"}, {"rollout.max_num_seqs": 128}


@dataclass(frozen=True)
class Fit:
    """A run on a device: memory and seconds by part, and the changes that make it fit (None: nothing known does)."""

    config: RunConfig
    shape: Shape
    device: Device
    name: str
    on_gpu: bool
    lengths: Lengths
    memory: Memory
    estimate: Estimate
    largest_micro_batch: int | None
    """The largest actor.micro_batch_tokens that fits; None where not even a single sequence does."""
    changes: dict[str, Any] | None

    @property
    def room(self) -> float:
        """Bytes of the device that a run can fill."""
        return room(self.device, self.on_gpu)

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.room

    @property
    def step(self) -> StepTime:
        """Seconds of a step."""
        return self.estimate.step

    def step_of(self, tokens: int) -> StepTime:
        """Seconds of a step with passes of `tokens` tokens."""
        changed = _with(self.config, {"actor.micro_batch_tokens": tokens, "actor.ppo_micro_batch_size": 0})
        setting = Setting.of(changed, self.shape, self.on_gpu)
        return step_time(changed, setting, self.device, self.estimate.lengths)

    def summary(self) -> str:
        """Memory by part, seconds by phase, and a sentence that says whether it fits or what would."""
        c, m = self.config, self.memory
        gpu = self.device.memory_gb * 1e9 if self.on_gpu else None
        sampler = chosen(c, self.shape, gpu)[0]
        kind = f"LoRA rank {c.model.lora_rank}" if c.model.lora_rank else "all weights"
        where = "this machine" if self.name == "here" else self.name
        head = (
            f"{c.model.path}: {self.shape.parameters / 1e9:.3g} B parameters, {kind}, {c.model.dtype}, on {where} "
            f"({self.device.memory_gb * 1e9 / GIB:.0f} GiB)\n"
            f"{c.data.train_batch_size} prompts of {self.lengths.prompt} tokens × {c.rollout.n} responses of "
            f"{self.lengths.response}; sampler: {sampler}"
        )
        lines = [head, "", f"{'memory':<28}{'GiB':>9}"]
        for title, parts in (("", m.held), ("rollout: ", m.rollout), ("update: ", m.update)):
            lines += [
                f"{title + name:<28}{size / GIB:>9.2f}"
                for name, size in parts.items()
                if size > SHOWN * m.peak
            ]
        lines += [f"{'peak of the rollout':<28}{m.rollout_bytes / GIB:>9.2f}"]
        lines += [f"{'peak of the update':<28}{m.update_bytes / GIB:>9.2f}", ""]
        lines += _seconds(self.step.phases, self.step.total)
        expected = self.estimate.lengths
        lines += [
            f"with prompts of {expected.prompt} tokens, responses of {expected.response} and up to {expected.longest}"
        ]
        return "\n".join([*lines, "", self.verdict()])

    def verdict(self) -> str:
        """One sentence: it fits, with how large a micro-batch; or it does not, and what would."""
        peak, room = self.memory.peak / GIB, self.room / GIB
        tokens = self.config.actor.pass_tokens(self.on_gpu)
        if self.fits:
            largest = max(self.largest_micro_batch or 0, tokens)
            more = f"could be {largest:,}" if largest > tokens else "is the largest that fits"
            if (faster := self.step_of(largest).total) < WORTH * self.step.total:
                more += f", with which a step would take {faster:.3g} s instead of {self.step.total:.3g}"
            return f"Fits: {peak:.1f} of {room:.1f} GiB that can be filled. actor.micro_batch_tokens {tokens:,} {more}."
        start = f"Does not fit: {peak:.1f} GiB are needed and {room:.1f} can be filled."
        if self.changes is None:
            return (
                f"{start} Nor would it with LoRA, bfloat16, gradient checkpointing, the smallest micro-batch and fewer "
                "sequences sampled at a time: take a larger device, shorter responses, or trainer.backend=verl on "
                "several GPUs (rlkit plan)."
            )
        words = " ".join(f"{key}={str(value).lower()}" for key, value in self.changes.items())
        return f"{start} What would fit: {words}"


def fit(
    what: str,
    overrides: Mapping[str, Any] | None = None,
    device: str = "here",
    tokens: tuple[int, int] = (0, 0),
) -> Fit:
    """The prediction for a model or a params file.

    Args:
        what: a YAML file, or anything that `model.path` may be.
        overrides: dotted keys, e.g. {"model.lora_rank": 32}.
        device: h100, h200, a100 …, cpu, or here.
        tokens: of a prompt and of a response; 0 is the config's limit.

    Raises:
        UserError: an unknown model, device or key.
    """
    changes = dict(overrides or {})
    if what.endswith((".yaml", ".yml")) or Path(what).is_file():
        config = load(what, changes)
    else:
        config = validate(RunConfig, override({"model": {"path": what}}, changes))
    limits, lengths = Lengths.limits(config), None
    if any(tokens):
        lengths = Lengths(tokens[0] or limits.prompt, tokens[1] or limits.response)
    return fit_run(config, device, lengths)


def fit_run(config: RunConfig, name: str = "here", lengths: Lengths | None = None) -> Fit:
    """`fit` of a RunConfig: memory for the longest prompts and responses that it allows, seconds for those that are to
    be expected, or both for `lengths`; on the CPU where it or the machine asks for that."""
    on_gpu = trains_on_gpu(config, name)
    shape, device = shape_of(config.model.path), device_named(name if on_gpu else "cpu")
    config = sized(config, shape, device, on_gpu)
    time = estimate(config, name, lengths)
    assert time is not None  # the shape is known
    lengths = lengths or Lengths.limits(config)
    memory = memory_of(config, shape, device, on_gpu, lengths)
    limit = room(device, on_gpu)

    def peak(c: RunConfig) -> float:
        return memory_of(c, shape, device, on_gpu, lengths).peak

    largest = _largest(config, lengths, lambda c: peak(c) <= limit)
    changes = {} if memory.peak <= limit else _changes(config, lengths, lambda c: peak(c) <= limit)
    return Fit(config, shape, device, name, on_gpu, lengths, memory, time, largest, changes)


def _with(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    return validate(RunConfig, override(config.model_dump(mode="json"), dict(changes)))


def _budgets(config: RunConfig, lengths: Lengths) -> list[int]:
    """Token budgets of a forward pass, ascending: powers of two times a sequence, up to all of an optimizer step."""
    longest = lengths.prompt + lengths.response
    prompts = config.actor.ppo_mini_batch_size or config.data.train_batch_size
    total = prompts * config.rollout.n
    sizes = itertools.takewhile(lambda k: k < total, (1 << i for i in range(64)))
    return [k * longest for k in [*sizes, total]]


def _largest(config: RunConfig, lengths: Lengths, fits: Any) -> int | None:
    """The largest budget that fits."""
    for tokens in reversed(_budgets(config, lengths)):
        if fits(_with(config, {"actor.micro_batch_tokens": tokens, "actor.ppo_micro_batch_size": 0})):
            return tokens
    return None


def _options(config: RunConfig) -> Iterator[dict[str, Any]]:
    """What a run can be changed by, the mildest first: none changes what is learnt until LoRA does."""
    mild = [{}] if config.model.enable_gradient_checkpointing else [{}, CHECKPOINTING]
    half = [{}] if config.model.dtype != "float32" else [{}, BFLOAT16]
    adapter = [{}] if config.model.lora_rank else [{}, LORA]
    seqs = [{}] if config.rollout.max_num_seqs <= 128 else [{}, FEWER]
    for lora, precision, checkpoint, fewer in itertools.product(adapter, half, mild, seqs):
        yield lora | precision | checkpoint | fewer


def _changes(config: RunConfig, lengths: Lengths, fits: Any) -> dict[str, Any] | None:
    """The mildest changes with which it fits; None where none of them helps."""
    for option in _options(config):
        largest = _largest(_with(config, option), lengths, fits)
        if largest is not None:
            smaller = min(largest, config.actor.pass_tokens(True))
            return option | ({} if fits(_with(config, option)) else {"actor.micro_batch_tokens": smaller})
    return None


def _seconds(phases: Mapping[str, float], total: float) -> list[str]:
    rows = [f"{name:<28}{value:>9.3g}" for name, value in phases.items()]
    return [f"{'step':<28}{'seconds':>9}", *rows, f"{'all':<28}{total:>9.3g}"]
