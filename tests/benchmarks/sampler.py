"""512 sequences drawn by rlkit's torch sampler and by transformers' `generate`, same model, prompts and threads.

    python tests/benchmarks/sampler.py [--sizes ladder-30k ladder-300k] [--tokens 16] [--rounds 8]

64 arithmetic prompts of unequal length, 8 samples each, temperature 1. Two settings: `full`, in which nothing
stops before the limit, and `stops`, in which a tenth of the vocabulary ends a response, so that sequences leave
early at different times. `generate` pads prompts on the left and keeps its dynamic cache, its defaults. rlkit
also returns the log-probs of the tokens. The systems take turns; medians are compared. The last line is JSON.
"""

import argparse
import json
import statistics
import time
from typing import Any, cast

import numpy as np
import torch

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.models.attention import pad_right
from rlkit.models.loading import load_policy
from rlkit.params import validate
from rlkit.samplers.torch import TorchSampler

PROMPTS, SAMPLES = 64, 8
SIZES = ["ladder-30k", "ladder-100k", "ladder-300k", "ladder-1m", "ladder-3m"]


def systems(size: str, setting: str, tokens: int) -> dict:
    """A function of a seed for both: draw all sequences and return how many tokens they have."""
    config = validate(
        RunConfig,
        {
            "study": "benchmark", "model": {"path": size, "warm_start": {"kind": "none"}},
            "data": {"train": [{"kind": "arithmetic"}, {"kind": "string_trace"}], "train_batch_size": PROMPTS},
            "rollout": {"n": SAMPLES}, "trainer": {"total_training_steps": 1},
        },
    )  # fmt: skip
    policy = load_policy(config.model, path=None)
    tasks, model = TaskStream(config, held_out(config)).batch(1), cast(Any, policy.model)
    prompts = [np.array(ids) for ids in policy.encode_all([t.prompt for t in tasks])]
    stops = list(range(0, len(policy.tokenizer), 10)) if setting == "stops" else []
    sampler = TorchSampler(policy.model, stops, policy.pad_id)
    # On the left.
    ids, mask = (x.flip(1) for x in pad_right([p[::-1].copy() for p in prompts], policy.pad_id))

    def ours(seed: int) -> int:
        groups = sampler.sample(prompts, SAMPLES, seed=seed, max_tokens=tokens)
        return sum(len(s.ids) for group in groups for s in group)

    @torch.inference_mode()
    def generate(seed: int) -> int:
        torch.manual_seed(seed)
        out = model.generate(
            input_ids=ids, attention_mask=mask.long(), do_sample=True, temperature=1.0, top_p=1.0, top_k=0,
            num_return_sequences=SAMPLES, max_new_tokens=tokens, eos_token_id=stops or None, pad_token_id=policy.pad_id,
        )  # fmt: skip
        answers = out[:, ids.shape[1] :]
        ended = torch.isin(answers, torch.tensor(stops)).long().cumsum(1)
        return int(((ended == 0).sum(1) + (ended > 0).any(1).long()).clamp(max=tokens).sum())

    return {"rlkit": ours, "generate": generate}


def compare(size: str, setting: str, tokens: int, rounds: int) -> dict:
    """Median seconds of both, mean tokens drawn, and the ratio."""
    drawers = systems(size, setting, tokens)
    seconds: dict[str, list[float]] = {name: [] for name in drawers}
    drawn: dict[str, list[int]] = {name: [] for name in drawers}
    for i in range(rounds + 2):
        for name, draw in drawers.items():
            start = time.perf_counter()
            count = draw(i)
            if i >= 2:
                seconds[name].append(time.perf_counter() - start)
                drawn[name].append(count)
    row: dict[str, Any] = {"size": size, "setting": setting}
    for name in drawers:
        row |= {name: statistics.median(seconds[name]), f"{name}_tokens": statistics.mean(drawn[name])}
    return row | {"ratio": row["generate"] / row["rlkit"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--settings", nargs="+", default=["full", "stops"])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print(f"{'model':<12}{'setting':<8}{'rlkit s':>10}{'generate s':>12}{'tokens':>9}{'generate / rlkit':>18}")
    for setting in options.settings:
        for size in options.sizes:
            row = compare(size, setting, options.tokens, options.rounds)
            rows.append(row)
            print(
                f"{size:<12}{setting:<8}{row['rlkit']:>10.3f}{row['generate']:>12.3f}{row['rlkit_tokens']:>9.0f}"
                f"{row['ratio']:>18.2f}",
                flush=True,
            )
    print(json.dumps({"benchmark": "sampler", "threads": options.threads, "rows": rows}))


if __name__ == "__main__":
    main()
