"""`rlkit doctor`: what this machine has and what follows; whether a run fits a device, and what would if not."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.params import override, validate
from rlkit.results.machine import hardware, usable_cores, versions
from rlkit.samplers.choice import VLLM_FROM
from rlkit.samplers.vllm_memory import GIB
from rlkit.sizing.devices import device_named, gpus
from rlkit.sizing.estimate import Estimate, estimate, trained_on
from rlkit.sizing.memory import Parts, Plan, memory, room, total

GPU_EXTRA = "pip install -e '.[gpu]'"
LOW_DISK = 5 * GIB


def machine_table() -> Table:
    """What `rlkit doctor` shows: the findings, what is to be mended in yellow."""
    table = Table("what", "found", "what follows", "to mend", box=SIMPLE_HEAD, pad_edge=False)
    for what, row in findings().items():
        table.add_row(*map(escape, (what, *row)), style="yellow" if row[-1] else "")
    return table


def findings() -> dict[str, tuple[str, str, str]]:
    """What a run may need: what was found, what follows, and the command that mends what is missing, or nothing."""
    cards, cores, free = gpus(), usable_cores(), shutil.disk_usage(Path.cwd()).free
    ram, little = psutil.virtual_memory(), free < LOW_DISK
    torch, verl, ray, vllm = map(versions().get, ("torch", "verl", "ray", "vllm"))
    rows = {
        "processor": (f"{hardware()['cpu']}, {cores} cores", f"a study trains {cores} runs at a time without a GPU",
                      ""),
        "memory": (f"{ram.total / GIB:.0f} GiB, {ram.available / GIB:.0f} free", "", ""),
        "disk": (f"{free / GIB:.0f} GiB free here", f"{'little ' * little}room for checkpoints and models",
                 "free some, or use --root" * little),
        "GPU": ("none", "runs train on the CPU: ladder models, and SmolLM2-135M with LoRA", ""),
        "torch": (f"{torch}", "trains on the GPU (trainer.device: auto)" if cards else "trains on the CPU", ""),
        "sampler": (f"torch; vLLM {vllm or 'is not installed'}", "rollout.name: auto is torch on a CPU", ""),
        "verl": (f"{verl}", "losses and estimators; trainer.backend: verl needs a GPU", ""),
    }  # fmt: skip
    if not cards:
        return rows
    names = ", ".join(f"{gpu.name} ({gpu.total / 1024:.0f} GiB, {gpu.used / 1024:.1f} used)" for gpu in cards)
    shared = "MPS is on" if mps_runs() else "in time slices: MPS is off"
    busy = "nvidia-smi shows which process holds the memory" * any(gpu.used > gpu.total / 20 for gpu in cards)
    packs = f"--workers auto packs a study's runs on {len(cards)} GPU{'s' * (len(cards) > 1)}, "
    rows["GPU"] = f"{names}; driver {cards[0].driver}", packs + shared, busy
    if problem := "the CPU's build" if "+cpu" in f"{torch}" else cuda_problem():
        rows["torch"] = f"{torch}", f"does not use the GPU: {problem}", f"update the driver, or {GPU_EXTRA}"
    long = f"from {VLLM_FROM // 10**9}B parameters, {'or' if vllm else 'and'} for long responses"
    rows["sampler"] = f"torch, vLLM {vllm}", f"rollout.name: auto is vllm {long}", ""
    if not vllm:
        rows["sampler"] = "torch; vLLM is not installed", f"more memory {long}", GPU_EXTRA
    missing = " and ".join(name for name, there in (("ray", ray), ("vllm", vllm)) if not there)
    works = f"needs {missing}" if missing else "works, for models past one GPU"
    rows["verl"] = f"{verl}", f"trainer.backend: verl {works}", GPU_EXTRA * bool(missing)
    return rows


def mps_runs() -> bool:
    """Whether the user's environment has NVIDIA's MPS on."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def cuda_problem() -> str:
    """Why torch cannot use the GPU, asked in a process of its own; empty where it can."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stderr.strip() or f"status {done.returncode}"
    return said.splitlines()[-1] if done.returncode else ""


class Fit(NamedTuple):
    """A run on a device; memory is each GPU's, and `changes` make it fit (None: nothing known does)."""

    plan: Plan
    name: str
    memory: Parts
    estimate: Estimate
    changes: dict[str, Any] | None

    @property
    def fits(self) -> bool:
        return total(self.memory) <= room(self.plan.device)

    def summary(self) -> str:
        """Memory by part, seconds by phase, and a sentence that says whether it fits or what would."""
        plan, c, e, least = self.plan, self.plan.config, self.estimate, total(self.memory) / 1000
        kind = f"LoRA rank {plan.rank}" if plan.rank else "all weights"
        where = f"verl on {plan.gpus} × " * plan.verl + ("this machine" if self.name == "here" else self.name)
        parts = {
            f"{phase}: {name}".removeprefix("held: "): size
            for phase, found in self.memory.items() for name, size in found.items() if size > least
        }  # fmt: skip
        parts |= {f"peak of the {phase}": total(self.memory, phase) for phase in ("rollout", "update")}
        lines = [
            f"{c.model.path}: {plan.shape.parameters / 1e9:.3g} B parameters, {kind}, {c.model.dtype}, on {where} "
            f"({plan.device.memory_gb * 1e9 / GIB:.0f} GiB)",
            f"{c.data.train_batch_size} prompts of {plan.prompt} tokens × {c.rollout.n} responses of {plan.response}; "
            f"sampler: {plan.sampler}",
            "", f"{'memory':<28}{'GiB':>9}", *(f"{name:<28}{size / GIB:>9.2f}" for name, size in parts.items()),
            "", f"{'step':<28}{'seconds':>9}",
            *(f"{name:<28}{value:>9.3g}" for name, value in {**e.phases, "all": e.step}.items()),
            "with prompts of {} tokens, responses of {} and up to {}".format(*e.lengths),
        ]  # fmt: skip
        if plan.verl:
            hours = e.seconds / 3600
            lines += [f"{e.steps} steps: {hours:.3g} h, {hours * plan.gpus:.3g} GPU-hours"]
        return "\n".join([*lines, "", self.verdict()])

    def verdict(self) -> str:
        """One sentence: it fits; or it does not, and what would."""
        peak, limit = total(self.memory) / GIB, room(self.plan.device) / GIB
        if self.fits:
            tokens = self.plan.pass_tokens
            return f"Fits: {peak:.1f} of {limit:.1f} GiB that can be filled, by passes of {tokens:,} tokens."
        start = f"Does not fit: {peak:.1f} GiB are needed and {limit:.1f} can be filled."
        if self.changes is None:
            return (
                f"{start} Nor would it with LoRA, bfloat16, gradient checkpointing, the smallest micro-batch and fewer "
                "sequences sampled at a time: take a larger device, shorter responses, or trainer.backend=verl with "
                "more GPUs (trainer.n_gpus_per_node, trainer.nnodes)."
            )
        return f"{start} What would fit: {' '.join(f'{k}={str(v).lower()}' for k, v in self.changes.items())}"


def fit(
    what: str | RunConfig, overrides: Mapping[str, Any] | None = None, name: str = "here",
    tokens: tuple[int, int] = (0, 0),
) -> Fit:  # fmt: skip
    """The prediction for `what`, a run, a YAML file or what `model.path` may be, with dotted overrides, on h100 …, cpu
    or here. `tokens`: of a prompt and of a response (0: the config's limit); by default memory is for the limits,
    seconds for the lengths that are expected. Raises UserError: an unknown model, device or key."""
    if isinstance(what, RunConfig):
        config = what
    elif what.endswith((".yaml", ".yml")) or Path(what).is_file():
        config = load(what, dict(overrides or {}))
    else:
        config = validate(RunConfig, override({"model": {"path": what}}, dict(overrides or {})))
    limits = config.data.max_prompt_length, config.data.max_response_length
    lengths = tuple(own or limit for own, limit in zip(tokens, limits, strict=True) if any(tokens))
    device = device_named(trained_on(config, name))
    if config.trainer.backend == "verl" and not device.gpu:
        raise UserError("--device is the CPU, but trainer.backend verl trains on GPUs: name one, e.g. h100.")
    plan = Plan(config, device, lengths)
    time = estimate(plan.config, name, lengths)
    assert time is not None  # the shape is known
    return Fit(plan, name, memory(plan), time, _changes(plan, lengths))


def _changes(plan: Plan, lengths: tuple[int, ...]) -> dict[str, Any] | None:
    """The mildest changes with which it fits; None where none helps. Only LoRA, the last, changes what is learnt."""
    m, least = plan.config.model, plan.prompt + plan.response
    halves = [plan.pass_tokens >> i for i in range(1, 30) if plan.pass_tokens >> i >= least]
    possible = {
        "model.lora_rank": [32] * (not m.lora_rank),
        "model.dtype": ["bfloat16"] * (m.dtype == "float32"),
        "model.enable_gradient_checkpointing": [True] * (not m.enable_gradient_checkpointing),
        "rollout.max_num_seqs": [128] * (plan.config.rollout.max_num_seqs > 128),
        "actor.micro_batch_tokens": halves,
    }
    content = plan.config.model_dump(mode="json")
    for values in itertools.product(*([None, *values] for values in possible.values())):
        changes = {key: value for key, value in zip(possible, values, strict=True) if value is not None}
        passes = {"actor.ppo_micro_batch_size": 0} if "actor.micro_batch_tokens" in changes else {}
        changed = Plan(validate(RunConfig, override(content, changes | passes)), plan.device, lengths)
        if total(memory(changed)) <= room(plan.device):
            return changes
    return None
