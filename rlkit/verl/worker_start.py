"""Imported by each of verl's processes as it starts (VERL_USE_EXTERNAL_MODULES), of runs with plugins or a critic.

It imports the plugins, and puts a loader of critics in place: verl 0.9.1 loads one with `flash_attention_2` whatever
its configuration says, and with a head of random numbers. This one follows the configuration and starts the head at
zero, as the local critic's does, so that the first advantages are the rewards themselves.
"""

from typing import Any

import torch
import verl.utils.model
from transformers import AutoModelForTokenClassification

from rlkit.registry import load_plugins, plugins_named


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """The model at a path with one output a token, named and called as verl's own."""
    model = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    for parameter in model.score.parameters():
        torch.nn.init.zeros_(parameter)
    return model


load_plugins(plugins_named())
verl.utils.model.load_valuehead_model = load_valuehead_model
