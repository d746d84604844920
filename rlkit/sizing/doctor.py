"""`rlkit doctor`: what this machine has and what follows; whether a run fits a device, and what would if not."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlkit.compute import Shape
from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.models.shapes import shape_of
from rlkit.params import override, validate
from rlkit.results.provenance import hardware, usable_cores
from rlkit.samplers.choice import VLLM_FROM, chosen
from rlkit.sizing.devices import GIB, Device, device_named, gpus
from rlkit.sizing.estimate import Estimate, StepTime, estimate, step_time, trained_on
from rlkit.sizing.memory import Lengths, Memory, Setting, memory_of, pass_tokens, room, sized

if TYPE_CHECKING:
    from rich.table import Table

GPU_EXTRA = "pip install -e '.[gpu]'"
LOW_DISK = 5 * GIB
WORTH = 0.95  # of a step's seconds: what a larger micro-batch must save to be told
SHOWN = 0.001  # parts below this share of the peak are not shown


class Finding(NamedTuple):
    """One thing that a run may need: what was found, what follows, and the command that mends what is missing."""

    what: str
    found: str
    follows: str
    mend: str = ""


def machine_table() -> "Table":
    """What `rlkit doctor` shows: the findings, what is to be mended in yellow."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("what", "found", "what follows", "to mend", box=SIMPLE_HEAD, pad_edge=False)
    for row in findings():
        table.add_row(*row, style="yellow" if row.mend else "")
    return table


def findings() -> list[Finding]:
    """What this machine has, what follows, and how to mend what is missing."""
    import psutil

    found, cores, memory = gpus(), usable_cores(), psutil.virtual_memory()
    free, size = shutil.disk_usage(Path.cwd()).free, f"{VLLM_FROM // 10**9}B"
    little, (torch, verl, ray, vllm) = free < LOW_DISK, map(version, ("torch", "verl", "ray", "vllm"))
    missing = " and ".join(name for name, there in (("ray", ray), ("vllm", vllm)) if not there)
    rows = [
        ("processor", f"{hardware()['cpu']}, {cores} cores", f"a study trains {cores} runs at a time without a GPU"),
        ("memory", f"{memory.total / GIB:.0f} GiB, {memory.available / GIB:.0f} free", ""),
        ("disk", f"{free / GIB:.0f} GiB free here", f"{'little ' * little}room for checkpoints and models",
         "free some, or use --root" * little),
    ]  # fmt: skip
    if not found:
        rows += [
            ("GPU", "none", "runs train on the CPU: ladder models, and SmolLM2-135M with LoRA"),
            ("torch", f"{torch}", "trains on the CPU"),
            ("sampler", f"torch; vLLM {vllm or 'is not installed'}", "rollout.name: auto is torch on a CPU"),
            ("verl", f"{verl}", "losses and estimators; trainer.backend: verl needs a GPU"),
        ]
        return [Finding(*row) for row in rows]
    names = ", ".join(f"{gpu.name} ({gpu.total / 1024:.0f} GiB, {gpu.used / 1024:.1f} used)" for gpu in found)
    cards = f"{len(found)} GPU{'s' * (len(found) > 1)}"
    shared = "MPS is on" if mps_runs() else "in time slices: MPS is off"
    busy = any(gpu.used > gpu.total / 20 for gpu in found)
    rows += [
        ("GPU", f"{names}; driver {found[0].driver}", f"--workers auto packs a study's runs on {cards}, {shared}",
         "nvidia-smi shows which process holds the memory" * busy),
        ("torch", f"{torch}", *_torch(f"{torch}")),
        ("sampler", f"torch, vLLM {vllm}", f"rollout.name: auto is vllm from {size} parameters, or for long responses")
        if vllm else
        ("sampler", "torch; vLLM is not installed", f"more memory from {size} parameters, and for long responses",
         GPU_EXTRA),
        ("verl", f"{verl}", f"trainer.backend: verl needs {missing}", GPU_EXTRA)
        if missing else
        ("verl", f"{verl}", "trainer.backend: verl works, for models past one GPU"),
    ]  # fmt: skip
    return [Finding(*row) for row in rows]


def version(package: str) -> str | None:
    """The installed version, or None; nothing is imported."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)


def mps_runs() -> bool:
    """Whether the user's environment has NVIDIA's MPS on."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def _torch(there: str) -> tuple[str, ...]:
    if "+cpu" in there:
        return "the CPU's build: the GPU is not used", GPU_EXTRA
    if problem := cuda_problem():
        return f"does not see the GPU: {problem}", "update the driver, or install torch for it"
    return ("trains on the GPU (trainer.device: auto)",)


def cuda_problem() -> str:
    """Why torch cannot use the GPU, asked in a process of its own; empty where it can."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stderr.strip() or f"status {done.returncode}"
    return said.splitlines()[-1] if done.returncode else ""


@dataclass(frozen=True)
class Fit:
    """A run on a device: memory of each GPU and seconds by part, and the changes that make it fit (None: nothing known
    does)."""

    config: RunConfig
    shape: Shape
    device: Device
    name: str
    lengths: Lengths
    memory: Memory
    estimate: Estimate
    largest_micro_batch: int | None
    """The largest actor.micro_batch_tokens that fits; None where not even a single sequence does."""
    changes: dict[str, Any] | None

    @property
    def fits(self) -> bool:
        return self.memory.peak <= room(self.device)

    @property
    def step(self) -> StepTime:
        """Seconds of a step."""
        return self.estimate.step

    def summary(self) -> str:
        """Memory by part, seconds by phase, and a sentence that says whether it fits or what would."""
        c, m, expected = self.config, self.memory, self.estimate.lengths
        kind = f"LoRA rank {c.model.lora_rank}" if c.model.lora_rank else "all weights"
        where = "this machine" if self.name == "here" else self.name
        verl, gpus = c.trainer.backend == "verl", c.trainer.nnodes * c.trainer.n_gpus_per_node
        sampler = "vllm" if verl else chosen(c, self.shape, self.device.gpu_bytes)[0]
        shown = dict(m.held)
        for title, parts in (("rollout", m.rollout), ("update", m.update)):
            shown |= {f"{title}: {name}": size for name, size in parts.items()}
        shown = {name: size for name, size in shown.items() if size > SHOWN * m.peak}
        shown |= {"peak of the rollout": m.rollout_bytes, "peak of the update": m.update_bytes}
        lines = [
            f"{c.model.path}: {self.shape.parameters / 1e9:.3g} B parameters, {kind}, {c.model.dtype}, on "
            f"{f'verl on {gpus} × ' * verl}{where} ({self.device.memory_gb * 1e9 / GIB:.0f} GiB)",
            f"{c.data.train_batch_size} prompts of {self.lengths.prompt} tokens × {c.rollout.n} responses of "
            f"{self.lengths.response}; sampler: {sampler}",
            "", f"{'memory':<28}{'GiB':>9}", *(f"{name:<28}{size / GIB:>9.2f}" for name, size in shown.items()),
            "", f"{'step':<28}{'seconds':>9}",
            *(f"{name:<28}{value:>9.3g}" for name, value in {**self.step.phases, "all": self.step.total}.items()),
            f"with prompts of {expected.prompt} tokens, responses of {expected.response} and up to {expected.longest}",
        ]  # fmt: skip
        if verl:
            hours = self.estimate.seconds / 3600
            lines += [f"{self.estimate.steps} steps: {hours:.3g} h, {hours * gpus:.3g} GPU-hours"]
        return "\n".join([*lines, "", self.verdict()])

    def verdict(self) -> str:
        """One sentence: it fits, with how large a micro-batch; or it does not, and what would."""
        setting = Setting.of(self.config, self.shape, self.device.gpu)
        peak, limit = self.memory.peak / GIB, room(self.device) / GIB
        tokens = pass_tokens(self.config, setting)
        start = f"Does not fit: {peak:.1f} GiB are needed and {limit:.1f} can be filled."
        if self.fits:
            largest = max(self.largest_micro_batch or 0, tokens)
            more = f"could be {largest:,}" if largest > tokens else "is the largest that fits"
            changed = _with_passes(self.config, largest)
            setting = Setting.of(changed, self.shape, self.device.gpu)
            faster = step_time(changed, setting, self.device, self.estimate.lengths).total
            if faster < WORTH * self.step.total:
                more += f", with which a step would take {faster:.3g} s instead of {self.step.total:.3g}"
            filled = f"{peak:.1f} of {limit:.1f} GiB that can be filled"
            return f"Fits: {filled}. actor.micro_batch_tokens {tokens:,} {more}."
        if self.changes is None:
            return (
                f"{start} Nor would it with LoRA, bfloat16, gradient checkpointing, the smallest micro-batch and fewer "
                "sequences sampled at a time: take a larger device, shorter responses, or trainer.backend=verl with "
                "more GPUs (trainer.n_gpus_per_node, trainer.nnodes)."
            )
        return f"{start} What would fit: {' '.join(f'{k}={str(v).lower()}' for k, v in self.changes.items())}"


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
    lengths = Lengths(tokens[0] or limits.prompt, tokens[1] or limits.response) if any(tokens) else None
    return fit_run(config, device, lengths)


def fit_run(config: RunConfig, name: str = "here", lengths: Lengths | None = None) -> Fit:
    """`fit` of a RunConfig: memory for the longest prompts and responses that it allows, seconds for those that are to
    be expected, or both for `lengths`; on the CPU where it or the machine asks for that."""
    shape, device = shape_of(config.model.path), device_named(trained_on(config, name))
    if config.trainer.backend == "verl" and not device.gpu:
        raise UserError("--device is the CPU, but trainer.backend verl trains on GPUs: name one, e.g. h100.")
    config, limit = sized(config, shape, device), room(device)
    time = estimate(config, name, lengths)
    assert time is not None  # the shape is known
    lengths = lengths or Lengths.limits(config)

    def fits(c: RunConfig) -> bool:
        return memory_of(c, shape, device, lengths).peak <= limit

    memory, largest = memory_of(config, shape, device, lengths), _largest(config, lengths, fits)
    changes = {} if memory.peak <= limit else _changes(config, lengths, fits)
    return Fit(config, shape, device, name, lengths, memory, time, largest, changes)


def _with(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    return validate(RunConfig, override(config.model_dump(mode="json"), dict(changes)))


def _with_passes(config: RunConfig, tokens: int) -> RunConfig:
    return _with(config, {"actor.micro_batch_tokens": tokens, "actor.ppo_micro_batch_size": 0})


def _largest(config: RunConfig, lengths: Lengths, fits: Callable[[RunConfig], bool]) -> int | None:
    """The largest pass that fits, in tokens: all sequences of an optimizer step, or a power of two of them."""
    total = config.mini_batch_size * config.rollout.n
    powers = [1 << i for i in range(total.bit_length()) if 1 << i < total]
    sizes = [size * (lengths.prompt + lengths.response) for size in (total, *reversed(powers))]
    return next((tokens for tokens in sizes if fits(_with_passes(config, tokens))), None)


def _changes(config: RunConfig, lengths: Lengths, fits: Callable[[RunConfig], bool]) -> dict[str, Any] | None:
    """The mildest changes with which it fits; None where none of them helps. None changes what is learnt until LoRA
    does."""
    m, long = config.model, config.rollout.max_num_seqs > 128
    possible = (
        ("model.lora_rank", 32, not m.lora_rank),
        ("model.dtype", "bfloat16", m.dtype == "float32"),
        ("model.enable_gradient_checkpointing", True, not m.enable_gradient_checkpointing),
        ("rollout.max_num_seqs", 128, long),
    )
    for chosen_changes in itertools.product(
        *([{}, {key: value}] for key, value, changes in possible if changes)
    ):
        changes = {key: value for change in chosen_changes for key, value in change.items()}
        changed = _with(config, changes)
        if (largest := _largest(changed, lengths, fits)) is not None:
            passes = {"actor.micro_batch_tokens": min(largest, config.actor.pass_tokens(True))}
            return changes | ({} if fits(changed) else passes)
    return None
