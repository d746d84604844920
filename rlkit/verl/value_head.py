"""verl's critic with the local one's head, and without flash-attn.

verl 0.9.1 loads a critic with `flash_attention_2` whatever its configuration says, and with a head of random
numbers. Every process of a run with a critic imports this module (VERL_USE_EXTERNAL_MODULES), which puts a loader
in place that follows the configuration and starts the head at zero, so that the first advantages are the rewards
themselves.
"""

from typing import Any

import torch
import verl.utils.model
from transformers import AutoModelForTokenClassification


def load_valuehead_model(
    local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool
) -> Any:
    """The model at a path with one output a token, named and called as verl's own."""
    model = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    for parameter in model.score.parameters():
        torch.nn.init.zeros_(parameter)
    return model


verl.utils.model.load_valuehead_model = load_valuehead_model
