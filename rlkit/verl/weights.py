"""The weights that verl starts from, and what is known of them without loading them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlkit.compute import Shape
from rlkit.config import RunConfig
from rlkit.config.model import is_ladder
from rlkit.models.ladder import ladder_config, parameter_counts
from rlkit.models.loading import MODELS, PACKAGED, add_lora, convert, load_policy, pretrained, save_model
from rlkit.training import warm_cache
from rlkit.training.warm_start import warm_start


def path_of(config: RunConfig) -> str:
    """Where the model is that verl loads, or will be once `prepare` has made it; a hub id stays one."""
    path = config.model.path
    if is_ladder(path):
        folder = warm_cache.place(config) or warm_cache.CACHE / f"{path}-random-{config.seed}"
        return str(folder.absolute())
    folder = MODELS / path if path in PACKAGED else Path(path)
    return str(folder.absolute()) if path in PACKAGED or folder.is_dir() else path


def prepare(config: RunConfig) -> str:
    """`path_of`, with the model made where it is not there: a warm start, random weights, a conversion."""
    path, folder = config.model.path, path_of(config)
    if path in PACKAGED:
        convert(path)
    elif is_ladder(path) and warm_start(config) is None and not (Path(folder) / "config.json").exists():
        plain = config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"})
        save_model(load_policy(plain, seed=config.seed), Path(folder))
    return folder


def describe(config: RunConfig) -> tuple[Shape, dict[str, int]]:
    """The shape for the ledger and the parameter counts of what trains; loads no weights. Raises UserError."""
    path = config.model.path
    if is_ladder(path):
        hf = ladder_config(path)
    else:
        with pretrained(path) as found:
            hf = AutoConfig.from_pretrained(**found)
    with torch.device("meta"):
        built: Any = AutoModelForCausalLM.from_config(hf)
        if config.model.lora_rank:
            built = add_lora(built, config.model, config.seed)
    return Shape.of(built), parameter_counts(built)
