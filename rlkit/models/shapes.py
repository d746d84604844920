"""Shapes of the ladder's sizes and of published models, and what passes and buffers are padded to; without torch."""

import json
from pathlib import Path
from typing import Any

from rlkit.compute import Shape
from rlkit.config import RunConfig
from rlkit.config.model import is_ladder
from rlkit.errors import UserError, did_you_mean
from rlkit.files import read_json

SHORT_RUN = 10_000  # decoding passes of a run (steps x response length) that vLLM does without CUDA graphs
CHUNK = 2**26  # logits held at once: 256 MiB in float32
FEWEST_ROWS, MANY_ROWS, NARROWEST = 64, 256, 16
ROLES = ("system", "user", "assistant")  # a token each in the ladder's tokenizer, wherever a text has them
WINDOW = 4096  # positions of the ladder's models
LAUNCH_BOUND = 30_000_000  # parameters up to which a GPU takes longer to launch a pass than to compute it
COMPILED_FROM = 400_000_000
"""Parameters from which a GPU's passes are compiled by default: SmolLM2's update took as long compiled on an H200."""


def _shapes(file: str) -> dict[str, Shape]:
    """The shapes in a file beside this one, by model."""
    content = json.loads(Path(__file__).with_name(file).read_text())
    return {name: Shape(**fields) for name, fields in content.items()}


LADDER = _shapes("ladder.json")
PUBLISHED = _shapes("published.json")
"""From the config.json of their model cards, by lower-case name without `-instruct`."""


def at_hand(path: str) -> bool:
    """Whether a model is there without a hub: a ladder size or a folder."""
    return path in LADDER or Path(path).is_dir()


def shape_of(path: str) -> Shape:
    """The shape of what `model.path` names. Raises UserError where nothing is known of it."""
    if path in LADDER and is_ladder(path):
        return LADDER[path]
    if (Path(path) / "config.json").is_file():
        return Shape.from_config(config_json(path), path)
    name = path.rpartition("/")[2].lower().removesuffix("-instruct")
    if name in PUBLISHED:
        return PUBLISHED[name]
    if path.count("/") == 1:
        from huggingface_hub import try_to_load_from_cache

        if isinstance(cached := try_to_load_from_cache(path, "config.json"), str):
            return Shape.from_config(config_json(Path(cached).parent), path)
    known = [*LADDER, *PUBLISHED]
    raise UserError(
        f"model.path is {path!r}, whose shape is not known here.{did_you_mean(path, known)} Give a "
        f"folder with a config.json, one of {', '.join(PUBLISHED)}, or a ladder size ({', '.join(LADDER)})."
    )


def config_json(folder: str | Path) -> dict[str, Any]:
    """What the config.json of a model's folder holds. Raises UserError where it does not hold an object."""
    file = Path(folder) / "config.json"
    if not (content := read_json(file)):
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
