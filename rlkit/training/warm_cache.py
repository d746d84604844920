"""Where warm starts are kept, and by what they are told apart; without torch, for plans."""

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rlkit.config import Optimizer, RunConfig
from rlkit.config.run import OLDER
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import content_hashes
from rlkit.files import read_json
from rlkit.params import override
from rlkit.seeds import content_hash

CACHE = Path("data/models/warm")
FACTS = "warm_start.json"  # beside the weights, written last
VERSION = 2  # part of the cache key: raise it when the same config would give other weights


@cache
def cuda_here() -> bool:
    """Whether torch can compute on a GPU of this machine; a torch for CPUs need not be loaded to tell."""
    if metadata.version("torch").endswith("+cpu"):
        return False
    import torch

    return torch.cuda.is_available()


def place(config: RunConfig) -> Path | None:
    """Where the warm start of a run is kept once it is made; None for a run without."""
    return CACHE / f"{Path(config.model.path).name}-{cache_key(config)}" if config.model.starts_warm else None


def made(folder: Path) -> bool:
    """Whether a warm start is there, with all that is known of it."""
    return "flops" in read_json(folder / FACTS)


def to_make(config: RunConfig) -> Path | None:
    """`place`, where a run has a warm start that is still to be made."""
    folder = place(config)
    return None if folder is None or made(folder) else folder


def cache_key(config: RunConfig) -> str:
    """Hash of all that decides the weights, the held-out set included (it is kept out of the problems)."""
    content, held = override(config.model_dump(mode="json"), OLDER), held_out(config)
    section = content["model"]["warm_start"]
    if section["sources"] is None:
        del section["sources"]
    parts = [content["model"]["path"], section, content["data"]["train"]]
    if config.model.warm_start.kind == "sft":
        stream = TaskStream(supervised(config, 0), held, side="sft")
        model = {k: v for k, v in content["model"].items() if k not in ("path", "warm_start")}
        del content["data"]["drop_solved_above"]  # of the RL steps alone
        files = sorted(Path(config.model.path).glob("*"))  # none of a hub id
        stats = [(f.name, f.stat()) for f in files if f.suffix in (".json", ".safetensors")]
        sizes = [(name, s.st_size, s.st_mtime_ns) for name, s in stats]
        parts += [model, content["data"], content_hashes(stream, held), sizes]
    if config.trainer.device != "cpu" and cuda_here():  # whose last bits are others
        parts.append(["cuda", config.trainer.tf32])
    return content_hash([VERSION, *parts, [t.id for t in held]], 12)


def supervised(config: RunConfig, seed: int) -> RunConfig:
    """The configuration of supervised steps: of the model, the stream that they draw from and their optimizer."""
    section, sft = config.model.warm_start, config.model.warm_start.kind == "sft"
    changes: dict[str, Any] = {"train_batch_size": section.batch_size, "order": "mixed", "stages": ()}
    if not sft or section.sources is not None:
        changes |= {"train_max_samples": -1, "sft_ratio": 0.0}
    if section.sources is not None:
        changes["train"] = section.sources
    warmup = min(20, section.steps // 4)
    optim = Optimizer(lr=section.lr, lr_warmup_steps=warmup, lr_scheduler_type="cosine")
    whole = {"ppo_mini_batch_size": 0, "ppo_micro_batch_size": 0, "ppo_epochs": 1, "optimizer_offload": False}
    return config.model_copy(update={
        "seed": seed,
        "model": config.model.model_copy(update={} if sft else {"lora_rank": 0, "dtype": "float32"}),
        "data": config.data.model_copy(update=changes),
        "actor": config.actor.model_copy(update=whole | {"optim": optim}),
        "trainer": config.trainer.model_copy(update={"total_training_steps": section.steps}),
    })  # fmt: skip
