"""What is predicted, offloaded and supervised on a GPU, in three minutes and without vLLM: python gpu_sizing.py

Prints one JSON line a check: predicted and measured seconds and bytes of steps of a Qwen2.5-0.5B shape, losses and
memory with the optimizer's moments on the host, and supervised steps that are ended and go on.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from gpu_systems import config_of, device, open_session, qwen_folder, wait

CASE = {"model": "qwen2.5-0.5b", "dtype": "bfloat16", "lora": 32, "tokens": 256, "prompts": 32, "steps": 4}


def steps(changes: dict[str, Any]) -> dict[str, Any]:
    """Seconds by phase, most bytes while sampling and in all, and the last loss of a few steps."""
    from rlkit.sizing.devices import device_named
    from rlkit.sizing.estimate import estimate
    from rlkit.sizing.memory import Plan, memory, total
    from rlkit.training.loop import rl_step

    config = config_of(CASE | ({"dry": True, "tokens": 8, "prompts": 2} if device() == "cpu" else {}), **changes)
    rows, free = [], 0
    with open_session(config) as run:
        for _ in range(4):
            rl_step(run)
            wait()
            run.end_step()
            rows.append(dict(run.metrics))
            free = torch.cuda.memory_allocated() if device() == "cuda" else 0
    took = min(r["timing_s/step"] - r["timing_s/reward"] for r in rows[2:])
    lengths = 64, config.data.max_response_length
    name = "h200" if device() == "cuda" else "cpu"
    cost = estimate(config, name, lengths)
    assert cost is not None
    parts = memory(Plan(config, device_named(name), lengths))
    peak = torch.cuda.max_memory_allocated() if device() == "cuda" else 1
    torch.cuda.empty_cache()
    if device() == "cuda":
        torch.cuda.reset_peak_memory_stats()
    return {
        "step_s": took, "predicted_s": cost.step - cost.phases["grading"], "phases": cost.phases,
        "measured": {k[9:]: v for k, v in rows[-1].items() if k.startswith("timing_s/")},
        "peak_gib": peak / 2**30, "predicted_gib": total(parts) / 2**30, "between_gib": free / 2**30,
        "loss": [r.get("actor/pg_loss") for r in rows], "norm": [r.get("actor/grad_norm") for r in rows],
    }  # fmt: skip


def supervised() -> dict[str, Any]:
    """Supervised steps of a pretrained shape, ended by Ctrl-C and gone on with."""
    import os
    import signal

    from rlkit.config import RunConfig
    from rlkit.params import validate
    from rlkit.training import warm_cache, warm_start

    warm_cache.CACHE = Path(tempfile.mkdtemp())
    path = qwen_folder("qwen2.5-0.5b", device() == "cpu")
    section = {"kind": "sft", "steps": 30, "batch_size": 16, "lr": 1e-4}
    config = validate(RunConfig, {
        "model": {"path": path, "dtype": "bfloat16", "lora_rank": 16, "warm_start": section},
        "data": {"sft_ratio": 0.5, "train_batch_size": 16}, "trainer": {"device": device()},
    })  # fmt: skip
    losses, ended = [], 0.0

    def at_ten(step: int, _: int, loss: float) -> None:
        nonlocal ended
        losses.append(loss)
        if step == 10:
            ended = time.perf_counter()
            os.kill(os.getpid(), signal.SIGINT)

    try:
        warm_start.warm_start(config, at_ten)
    except KeyboardInterrupt:
        ended = time.perf_counter() - ended
    began = time.perf_counter()
    started = warm_start.warm_start(config, lambda step, steps, loss: losses.append(loss))
    assert started is not None
    return {"ended_in_s": ended, "rest_s": time.perf_counter() - began, "losses": losses, **started.facts}


if __name__ == "__main__":
    whole = {"model.lora_rank": 0}
    for name, check in {
        "lora": lambda: steps({}), "whole": lambda: steps(whole),
        "whole, moments on the host": lambda: steps(whole | {"actor.optimizer_offload": True}),
        "supervised": supervised,
    }.items():  # fmt: skip
        print(json.dumps({"check": name, **check()}), flush=True)
