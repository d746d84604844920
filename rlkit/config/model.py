"""The policy and its warm start: `model.*`."""

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator

from rlkit.config.data import Source
from rlkit.params import Section, Share, refuse

LINEAR: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""A layer's linear modules, which may get an adapter."""
WHOLE_ONLY = ("lm_head", "embed_tokens")


def is_ladder(path: str) -> bool:
    """Whether `model.path` names a ladder size rather than a folder of that name."""
    return path.startswith("ladder-") and not Path(path).exists()


class WarmStart(Section):
    """Supervised steps before reinforcement learning, on problems with worked answers."""

    kind: Literal["fixed", "sft", "none"] = "fixed"
    """fixed: a ladder model's stand-in for pretraining, nothing for other models. sft: any model, all weights or an
    adapter as `model` says, on the rows that data.sft_ratio sets aside or on `sources`."""
    sources: tuple[Source, ...] | None = None
    """Worked problems, e.g. {kind: file, path: worked.parquet}: extra_info.solution, or else the ground truth, is the
    answer. Unset is data.train."""
    steps: PositiveInt = 400
    """Optimizer steps."""
    batch_size: PositiveInt = 256
    """Worked problems a step."""
    lr: NonNegativeFloat = 2e-3
    """Peak learning rate, cosine to zero."""
    seed: int = 0
    """Seed of initial weights and problems, which the seeds of a study then share; `run` is the run's own seed, so
    that what seeds show includes the luck of the start."""


class Model(Section):
    """The policy."""

    path: str = Field(default="ladder-100k", examples=["ladder-30k", "ladder-100k", "ladder-300k", "Qwen/Qwen2.5-0.5B"])
    """A ladder size (ladder-10k … ladder-300m), smollm2-135m-instruct, a folder, or a Hugging Face hub id."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of passes; weights that train stay in float32. float16 rounds finer than bfloat16, so that sampler
    and trainer agree better (arXiv 2510.26788); its gradients are scaled, and a step in which they overflow is
    skipped."""
    enable_gradient_checkpointing: bool = False
    """Keep only each layer's input for the backward pass: less memory, a third more compute."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the LoRA adapter; 0 trains all weights."""
    lora_alpha: PositiveInt = 16
    """Scale of the adapter: its output is multiplied by lora_alpha / lora_rank."""
    lora_dropout: Share = 0.0
    """Dropout before the adapter."""
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Linear layers that get an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj."""
    warm_start: WarmStart = WarmStart()

    @property
    def starts_warm(self) -> bool:
        """Whether supervised steps come before reinforcement learning."""
        kind = self.warm_start.kind
        return kind == "sft" or (kind == "fixed" and is_ladder(self.path))

    @field_validator("target_modules")
    @classmethod
    def _adapted(cls, targets: tuple[str, ...] | str) -> tuple[str, ...] | str:
        known = f"name some of {', '.join(LINEAR)}, or all-linear"
        refuse((not targets, f"it is empty, so that nothing would train: {known}"))
        for name in () if isinstance(targets, str) else targets:
            whole = name.rpartition(".")[2] in WHOLE_ONLY
            why = "embeddings and the output head train with all weights only" if whole else "unknown"
            refuse((name.rpartition(".")[2] not in LINEAR, f"{name!r} gets no adapter ({why}): {known}"))
        return targets
