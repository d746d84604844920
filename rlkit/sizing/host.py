"""What launching a kernel from Python takes on this machine, measured: it is the processor's, and was half as much
again on one host as on two others of the same GPU.

The passes are those that rlkit.sizing.seconds has its constant from: LoRA in bfloat16, through the update's own code.
"""

import time
from typing import Any

import numpy as np

from rlkit.sizing.seconds import KERNELS

LAYERS, HIDDEN, HEADS = 12, 64, 2
"""Deep, so that what is launched beside the layers is 3 %, and narrow, so that no kernel takes longer than its
launch."""
RANK = 16
AMID = 1.5e-5
"""Seconds that a launch amid a run, whose code and data have left the processor's caches, takes more than one in a
quiet loop: in steps of ladder-100m 35 to 37 µs where it is 20 here, and 40 to 49 where it is 26 to 32."""
WARM_UP, PASSES = 3, 20
ENOUGH = 1.0
"""Seconds of passes after which no more are made."""


def launch_seconds(device: str = "cuda") -> float:
    """Seconds from one kernel to the next where Python launches them amid a run; the GPU should have nothing to do.

    Raises:
        RuntimeError: the device is not there, or has no memory left.
    """
    import torch

    from rlkit.models.decoder import Decoder
    from rlkit.training.forward import Rows, text_batch, token_logprobs

    decoder, tokens = Decoder(_model(device)), [np.arange(4)] * 2
    rows = Rows.of(text_batch(tokens, tokens, 0, device), torch.arange(2, device=device))
    wait = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None

    def seconds() -> float:
        wait()
        began = time.perf_counter()
        token_logprobs(decoder, rows)[0].sum().backward()
        wait()
        return time.perf_counter() - began

    for _ in range(WARM_UP):
        seconds()
    times = []
    while len(times) < PASSES and sum(times) < ENOUGH:
        times.append(seconds())
    undisturbed = float(np.quantile(times, 0.1))  # other processes only ever add
    return AMID + undisturbed / (LAYERS * sum(KERNELS.values()))


def measured_launch() -> float | None:
    """`launch_seconds` of this machine's GPU; None where torch cannot use it, or not now."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return launch_seconds()
    except RuntimeError:  # no memory left, or another process has the GPU for itself
        return None


def _model(device: str) -> Any:
    """A tiny model with an adapter, of random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rlkit.config import Model
    from rlkit.models.loading import add_lora
    from rlkit.models.rungs import VOCABULARY

    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=3 * HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        model: Any = Qwen2ForCausalLM(config)
    return add_lora(model.to(device, torch.bfloat16), Model(lora_rank=RANK), seed=0)
