"""Shapes of the ladder's sizes and of published models, and what passes and buffers are padded to; without torch."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlkit.compute import Shape
from rlkit.config import RunConfig
from rlkit.config.model import is_ladder
from rlkit.errors import UserError, did_you_mean

SHORT_RUN = 10_000  # decoding passes of a run (steps x response length) that vLLM does without CUDA graphs
CHUNK = 2**26  # logits held at once: 256 MiB in float32
FEWEST_ROWS, MANY_ROWS, NARROWEST = 64, 256, 16
VOCABULARY = 262  # bytes, specials and role names of the ladder's tokenizer
ROLES = ("system", "user", "assistant")  # a token each in the ladder's tokenizer, wherever a text has them
WINDOW = 4096  # positions of the ladder's models
LAUNCH_BOUND = 30_000_000  # parameters up to which a GPU takes longer to launch a pass than to compute it
COMPILED_FROM = 400_000_000
"""Parameters from which a GPU's passes are compiled by default: SmolLM2's update took as long compiled on an H200."""

LADDER = {
    name: Shape(layers, hidden, wide, heads, heads, hidden // heads, VOCABULARY, tied=True, bias=True)
    for name, (layers, hidden, wide, heads) in {
        "ladder-10k": (1, 32, 64, 1),
        "ladder-30k": (2, 32, 128, 1),
        "ladder-50k": (2, 48, 96, 2),
        "ladder-60k": (3, 32, 160, 1),
        "ladder-100k": (2, 64, 192, 2),
        "ladder-150k": (2, 80, 208, 2),
        "ladder-200k": (3, 64, 256, 2),
        "ladder-300k": (3, 96, 240, 3),
        "ladder-600k": (4, 96, 384, 3),
        "ladder-1m": (4, 128, 480, 4),
        "ladder-3m": (5, 192, 768, 6),
        "ladder-10m": (8, 320, 864, 10),
        "ladder-30m": (10, 512, 1280, 8),
        "ladder-100m": (14, 768, 2048, 12),
        "ladder-300m": (24, 1024, 2688, 16),
    }.items()
}


def at_hand(path: str) -> bool:
    """Whether a model is there without a hub: a ladder size or a folder."""
    return path in LADDER or Path(path).is_dir()


@cache
def published() -> dict[str, Shape]:
    """Shapes of published models, from the config.json of their model cards, by lower-case name without `-instruct`."""
    content = json.loads(Path(__file__).with_name("published.json").read_text())
    return {name: Shape(**fields) for name, fields in content.items()}


def shape_of(path: str) -> Shape:
    """The shape of what `model.path` names. Raises UserError where nothing is known of it."""
    if path in LADDER and is_ladder(path):
        return LADDER[path]
    if (Path(path) / "config.json").is_file():
        return Shape.from_config(config_json(path), path)
    name = path.rpartition("/")[2].lower().removesuffix("-instruct")
    if name in published():
        return published()[name]
    if path.count("/") == 1:
        from huggingface_hub import try_to_load_from_cache

        if isinstance(cached := try_to_load_from_cache(path, "config.json"), str):
            return Shape.from_config(config_json(Path(cached).parent), path)
    known = [*LADDER, *published()]
    raise UserError(
        f"model.path is {path!r}, whose shape is not known here.{did_you_mean(path, known)} Give a "
        f"folder with a config.json, one of {', '.join(published())}, or a ladder size ({', '.join(LADDER)})."
    )


def config_json(folder: str | Path) -> dict[str, Any]:
    """What the config.json of a model's folder holds. Raises UserError where it does not hold an object."""
    file, content = Path(folder) / "config.json", None
    with suppress(OSError, ValueError):
        content = json.loads(file.read_text())
    if not isinstance(content, dict) or not content:
        raise UserError(f"{file} is empty or broken: copy the model's folder again.")
    return content


def row_bucket(size: int) -> int:
    """`size` rounded up to a power of two from FEWEST_ROWS on; above MANY_ROWS, where rows cost, to an eighth of it."""
    power = max(FEWEST_ROWS, 1 << (size - 1).bit_length())
    step = power // 8 if power > MANY_ROWS else power
    return -(-size // step) * step


def width_bucket(size: int, finest: int = 0) -> int:
    """`size` rounded up to a quarter of a power of two, at least to `finest` (NARROWEST): a third more at most."""
    step = max(finest or NARROWEST, (1 << (size - 1).bit_length()) // 4)
    return -(-size // step) * step


def captures(config: RunConfig, on_gpu: bool, parameters: int) -> bool:
    """Whether the update's passes are CUDA graphs: launching one of a small model takes longer than computing it."""
    m = config.model
    other = m.lora_dropout or m.enable_gradient_checkpointing or config.actor.ppo_micro_batch_size
    return on_gpu and parameters <= LAUNCH_BOUND and not other


def compiles(config: RunConfig, on_gpu: bool, parameters: int) -> bool:
    """Whether the kernels of the update's and the torch sampler's passes are to be compiled."""
    use = config.actor.use_torch_compile
    return on_gpu and parameters >= COMPILED_FROM if use is None else use


def decodes_eagerly(config: RunConfig) -> bool:
    """Whether vLLM decodes a run on verl without CUDA graphs, whose capture takes tens of seconds at every start."""
    return config.trainer.total_training_steps * config.data.max_response_length < SHORT_RUN
