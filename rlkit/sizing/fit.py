"""Whether a run fits on a device, how long its steps take, and what would fit if it does not."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig, load
from rlkit.params import override, validate
from rlkit.provenance import hardware
from rlkit.sizing.devices import Device, device_named
from rlkit.sizing.host import measured_launch
from rlkit.sizing.memory import Lengths
from rlkit.sizing.run import CONTEXT, USABLE, Memory, memory_of, sized
from rlkit.sizing.seconds import StepTime, seconds_of
from rlkit.sizing.shapes import ModelShape, shape_of

CHECKPOINTING, LORA = {"model.enable_gradient_checkpointing": True}, {"model.lora_rank": 32}
BFLOAT16, FEWER = {"model.dtype": "bfloat16"}, {"rollout.max_num_seqs": 128}


@dataclass(frozen=True)
class Fit:
    """A run on a device: memory and seconds by part, and the changes that make it fit (None: nothing known does)."""

    config: RunConfig
    shape: ModelShape
    device: Device
    name: str
    on_gpu: bool
    lengths: Lengths
    memory: Memory
    step: StepTime
    largest_micro_batch: int | None
    """The largest actor.micro_batch_tokens that fits; None where not even a single sequence does."""
    changes: dict[str, Any] | None
    launch: float | None
    """Seconds that a kernel launched from Python takes, as measured on this machine; None where it was not."""

    @property
    def room(self) -> float:
        """Bytes of the device that a run can fill."""
        return room(self.device, self.on_gpu)

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.room

    def step_of(self, tokens: int) -> StepTime:
        """Seconds of a step with passes of `tokens` tokens."""
        changed = _with(self.config, {"actor.micro_batch_tokens": tokens, "actor.ppo_micro_batch_size": 0})
        return seconds_of(changed, self.shape, self.device, self.on_gpu, self.lengths, self.launch)

    def summary(self) -> str:
        """The prediction as a text for people."""
        from rlkit.sizing.text import summary

        return summary(self)


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
    limits = Lengths.limits(config)
    return fit_run(config, device, Lengths(tokens[0] or limits.prompt, tokens[1] or limits.response))


def fit_run(config: RunConfig, device: str = "here", lengths: Lengths | None = None) -> Fit:
    """`fit` of a RunConfig; on the CPU where it or the machine asks for that. Of this machine's GPU, what a launch
    takes is measured."""
    on_gpu = config.trainer.device != "cpu" and (
        bool(hardware()["gpus"]) if device == "here" else device != "cpu"
    )
    launch = measured_launch() if on_gpu and device == "here" else None
    return fit_config(config, device if on_gpu else "cpu", on_gpu, lengths, launch)


def fit_config(
    config: RunConfig,
    name: str,
    on_gpu: bool,
    lengths: Lengths | None = None,
    launch: float | None = None,
) -> Fit:
    """`fit` of a RunConfig on the device of a name; `launch` as in `seconds_of`."""
    shape, device, lengths = (
        shape_of(config.model.path),
        device_named(name),
        lengths or Lengths.limits(config),
    )
    config = sized(config, shape, device, on_gpu)
    memory = memory_of(config, shape, device, on_gpu, lengths)
    limit = room(device, on_gpu)

    def peak(c: RunConfig) -> float:
        return memory_of(c, shape, device, on_gpu, lengths).peak

    largest = _largest(config, lengths, lambda c: peak(c) <= limit)
    changes = {} if memory.peak <= limit else _changes(config, lengths, lambda c: peak(c) <= limit)
    step = seconds_of(config, shape, device, on_gpu, lengths, launch)
    return Fit(config, shape, device, name, on_gpu, lengths, memory, step, largest, changes, launch)


def room(device: Device, on_gpu: bool) -> float:
    """Bytes that a run can fill: less what the CUDA context takes and fragmentation loses."""
    return USABLE * (device.memory_gb * 1e9 - (CONTEXT if on_gpu else 0))


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
            smaller = min(largest, config.actor.tokens_a_pass)
            return option | ({} if fits(_with(config, option)) else {"actor.micro_batch_tokens": smaller})
    return None
