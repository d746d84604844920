"""rlkit beside TRL and vLLM on one GPU: GRPO steps, decoding and the gap between sampler and trainer.

    pip install --no-deps --target /tmp/trl trl==1.16.0
    PYTHONPATH=/tmp/trl python tests/benchmarks/gpu.py --out gpu.json [--cases step-3m decode-3m …]

Each system runs in a process of its own, one after the other on the same card. A step is rollout, reward,
update, the copy of the weights to the sampler and logging; medians are compared. The Qwen2.5 shapes have random
weights: only time and memory are measured with them. Prints a table and, last, one JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

HERE = Path(__file__).resolve()
CASES = {
    "step-3m": {"model": "ladder-3m", "tokens": 32, "systems": ["rlkit", "trl"]},
    "step-smollm2": {
        "model": "smollm2-135m-instruct", "tokens": 128, "lora": 16, "dtype": "bfloat16",
        "systems": ["rlkit", "rlkit-vllm", "trl-vllm"],
    },
    "step-1.5b": {
        "model": "qwen2.5-1.5b", "tokens": 512, "lora": 32, "dtype": "bfloat16", "steps": 3,
        "systems": ["rlkit", "rlkit-torch", "trl-vllm"],
    },
    "step-7b": {
        "model": "qwen2.5-7b", "tokens": 512, "lora": 32, "dtype": "bfloat16", "steps": 2, "systems": ["rlkit"],
    },
    "decode-3m": {"model": "ladder-3m", "prompts": 512, "tokens": 32, "systems": ["torch"]},
    "decode-3m-bf16": {
        "model": "ladder-3m", "prompts": 512, "tokens": 32, "dtype": "bfloat16", "systems": ["torch"],
    },
    "decode-30m": {"model": "ladder-30m", "tokens": 128, "dtype": "bfloat16", "systems": ["torch", "vllm"]},
    "decode-300m": {"model": "ladder-300m", "tokens": 128, "dtype": "bfloat16", "systems": ["torch", "vllm"]},
    "decode-1.5b": {
        "model": "qwen2.5-1.5b", "tokens": 512, "dtype": "bfloat16", "systems": ["torch", "vllm", "offline"],
    },
    "gap-smollm2": {
        "model": "smollm2-135m-instruct", "tokens": 128, "dtype": "bfloat16", "systems": ["torch", "vllm"],
    },
}  # fmt: skip
QWEN = {  # hidden size, MLP size, layers, heads, key heads, tied embeddings: the published configurations
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, True),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, True),
    "qwen2.5-3b": (2048, 11008, 36, 16, 2, True),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, False),
}
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bfloat16 FLOP/s of the data sheets


def letters(response: str) -> float:
    """A reward that varies within groups of random text: the share of letters."""
    return sum(c.isalpha() for c in response) / max(1, len(response))


def compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float:
    """`letters` with verl's signature, for rlkit's router."""
    return letters(solution_str)


def qwen_folder(name: str) -> str:
    """A folder with random weights of a Qwen2.5 shape and a byte tokenizer filled up to its vocabulary."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from rlkit.models.tokenizer import byte_tokenizer

    folder, (hidden, mlp, layers, heads, kv, tied) = Path(tempfile.gettempdir()) / name, QWEN[name]
    if not (folder / "config.json").exists():
        tokenizer = byte_tokenizer()
        tokenizer.add_tokens([f"w{i}" for i in range(151_936 - len(tokenizer))])
        config = Qwen2Config(
            vocab_size=151_936, hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=kv, tie_word_embeddings=tied, max_position_embeddings=32_768,
            eos_token_id=cast(int, tokenizer.eos_token_id), pad_token_id=cast(int, tokenizer.pad_token_id),
        )  # fmt: skip
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)


def config_of(case: dict, **changes):
    """The run that every system takes a step of: 64 prompts × 8 samples unless the case says otherwise."""
    from rlkit.config import RunConfig
    from rlkit.params import override, validate

    path = qwen_folder(case["model"]) if case["model"] in QWEN else case["model"]
    steps = case.get("steps", 8)
    base = {
        "study": "benchmark",
        "model": {
            "path": path, "dtype": case.get("dtype", "float32"), "lora_rank": case.get("lora", 0), "lora_alpha": 32,
            "warm_start": {"kind": "none"},
        },
        "data": {
            "train": [{"kind": "arithmetic"}, {"kind": "string_trace"}], "train_batch_size": case.get("prompts", 64),
            "max_response_length": case["tokens"],
        },
        "rollout": {"n": 8, "max_logprob_gap": 1.0},
        "reward": {"custom_reward_function": f"{HERE}:compute_score"},
        "actor": {"micro_batch_tokens": case.get("micro", 65_536)},
        "trainer": {"total_training_steps": steps + 2, "test_freq": 0, "save_freq": 0, "device": "cuda"},
        "evaluation": {"size": 16, "n": 1},
    }  # fmt: skip
    return validate(RunConfig, override(base, changes))


def step_rlkit(case: dict, sampler: str) -> dict:
    """Seconds by phase of rlkit's steps, peak memory, and how much of the card they use."""
    import torch

    from rlkit.training.session import Session

    config = config_of(case, **{"rollout.name": sampler})
    rows, updates = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open(config, Path(folder), progress=False) as session,
    ):
        chosen = session.store.info["sampler"]
        for _ in range(config.trainer.total_training_steps):
            before = session.ledger.flops["update"]
            session.begin_step()
            session.learn(session.rollout())
            session.sync()
            torch.cuda.synchronize()
            session.end_step()
            rows.append(dict(session.metrics))
            updates.append(session.ledger.flops["update"] - before)
    kept = rows[2:]
    phases = {
        k.removeprefix("timing_s/"): statistics.median(r[k] for r in kept) for k in kept[0] if "timing_s" in k
    }
    card = torch.cuda.get_device_name()
    peak = next((v for k, v in PEAK.items() if k in card), float("nan"))
    tokens = statistics.median(r["response_length/mean"] for r in kept) * config.data.train_batch_size * 8
    return {
        "seconds": phases["step"], "phases": phases, "sampler": chosen,
        "tokens_per_second": tokens / phases["gen"], "peak_gib": torch.cuda.max_memory_reserved() / 2**30,
        "update_mfu": statistics.median(updates[2:]) / phases["update_actor"] / peak,
        "gap": statistics.median(r["policy/logprob_gap"] for r in kept), "card": card,
    }  # fmt: skip


def step_trl(case: dict, vllm: bool) -> dict:
    """Seconds of TRL's optimizer steps of the same size, by its own training loop."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rlkit.data import TaskStream, held_out
    from rlkit.models.loading import load_policy, save_model

    for name, value in dict(
        RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=29511
    ).items():
        os.environ.setdefault(name, str(value))
    config, ends = config_of(case), []
    folder = Path(tempfile.mkdtemp())
    plain = config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"})
    policy = load_policy(plain)
    save_model(policy, folder / "model")
    stream = TaskStream(config, held_out(config))
    tasks = [t for step in range(1, config.trainer.total_training_steps + 1) for t in stream.batch(step)]
    half = case.get("dtype") == "bfloat16"
    part = case.get("trl_batch", 512 if case["tokens"] <= 32 else 64 if case["tokens"] <= 128 else 16)

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            torch.cuda.synchronize()
            ends.append(time.perf_counter())

    arguments = GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=part, num_generations=8,
        gradient_accumulation_steps=512 // part, max_completion_length=case["tokens"], temperature=1.0, beta=0.0,
        learning_rate=1e-5, bf16=half, gradient_checkpointing=False, report_to=[], save_strategy="no", logging_steps=1,
        max_steps=config.trainer.total_training_steps, disable_tqdm=True, use_vllm=vllm, vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.3, vllm_max_model_length=config.data.max_prompt_length + case["tokens"],
        model_init_kwargs={"dtype": "bfloat16" if half else "float32"},
    )  # fmt: skip
    lora = (
        LoraConfig(r=case["lora"], lora_alpha=32, target_modules="all-linear") if case.get("lora") else None
    )
    trainer = GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=lambda completions, **_: [letters(c[0]["content"]) for c in completions],
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": list(t.prompt)} for t in tasks]),
        processing_class=policy.tokenizer,
        peft_config=lora,
        callbacks=[Clock()],
    )
    trainer.train()
    return {"seconds": statistics.median(b - a for a, b in pairwise(ends[1:])),
            "peak_gib": torch.cuda.max_memory_reserved() / 2**30}  # fmt: skip


def decode(case: dict, system: str) -> dict:
    """Tokens a second of one sampler at prompts × 8 sequences of full length, best of three calls."""
    import numpy as np

    from rlkit.data import TaskStream, held_out
    from rlkit.models.loading import load_policy

    config = config_of(case, **{"rollout.name": "torch" if system == "torch" else "vllm"})
    policy = load_policy(config.model, device="cuda")
    policy.stop_ids = () if "smollm2" not in case["model"] else policy.stop_ids
    tasks = TaskStream(config, held_out(config)).batch(1)
    prompts = [np.array(policy.encode(t.prompt)) for t in tasks]
    sampler, seconds = sampler_of(system, policy, config), []
    for i in range(4):
        start = time.perf_counter()
        groups = sampler.sample(prompts, 8, seed=i, max_tokens=case["tokens"])
        seconds.append(time.perf_counter() - start)
    tokens = sum(len(s.ids) for g in groups for s in g)
    result = {"seconds": min(seconds[1:]), "tokens_per_second": tokens / min(seconds[1:])}
    if "smollm2" in case["model"]:
        result |= gap(config, policy, prompts, groups)
    return result


def sampler_of(system: str, policy, config):
    """The sampler by name; `offline` is vLLM as its own users run it, in a process of its own, default settings."""
    from rlkit.samplers import make_sampler

    if system != "offline":
        return make_sampler(policy, config)[0]
    from vllm import LLM, SamplingParams

    class Offline:
        engine = LLM(config.model.path, dtype="bfloat16", gpu_memory_utilization=0.8, max_model_len=1024)

        def sample(self, prompts, n, *, seed, max_tokens):
            p = SamplingParams(n=n, temperature=1.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
            requests = [{"prompt_token_ids": ids.tolist()} for ids in prompts]
            outputs = self.engine.generate(requests, p, use_tqdm=False)
            return [[SimpleNamespace(ids=o.token_ids) for o in g.outputs] for g in outputs]

    return Offline()


def gap(config, policy, prompts, groups) -> dict:
    """|Δ log p| a token between the sampler and the trainer's forward pass: mean, largest, histogram."""
    import numpy as np
    import torch

    from rlkit.models.decoder import Decoder
    from rlkit.training.forward import Rows, text_batch, token_logprobs
    from rlkit.training.probe import EDGES

    flat = [(p, s) for p, g in zip(prompts, groups, strict=True) for s in g]
    batch = text_batch([p for p, _ in flat], [s.ids for _, s in flat], policy.pad_id, "cuda")
    gaps = []
    for rows in torch.arange(len(flat), device="cuda").split(64):
        part = Rows.of(batch, rows)
        with torch.no_grad():
            ours, _ = token_logprobs(Decoder(policy.model), part)
        theirs = np.concatenate([flat[i][1].logprobs for i in rows.tolist()])
        gaps.append(np.abs(ours[part.present].float().cpu().numpy() - theirs))
    gaps = np.concatenate(gaps)
    counts = np.histogram(gaps, [*EDGES, np.inf])[0].tolist()
    return {"gap_mean": float(gaps.mean()), "gap_max": float(gaps.max()), "edges": EDGES, "histogram": counts}


def one(name: str, system: str, out: Path) -> None:
    """Measure one system in this process."""
    warnings.filterwarnings("ignore")
    case = CASES[name]
    if name.startswith("step"):
        if system.startswith("trl"):
            result = step_trl(case, vllm=system.endswith("vllm"))
        else:
            result = step_rlkit(case, {"rlkit": "auto", "rlkit-vllm": "vllm", "rlkit-torch": "torch"}[system])
    else:
        result = decode(case, system)
    out.write_text(json.dumps({"case": name, "system": system, **result}))
    os._exit(0)  # engines leave threads behind that would hold a clean exit up


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[c for c in CASES if c != "step-7b"], choices=CASES)
    parser.add_argument("--systems", nargs="+", help="only these")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--one", nargs=2, metavar=("CASE", "SYSTEM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], options.one[1], options.out)
    rows = []
    for name in options.cases:
        for system in CASES[name]["systems"]:
            if options.systems and system not in options.systems:
                continue
            part, log = (
                options.out.with_suffix(f".{name}.{system}.json"),
                options.out.with_suffix(f".{name}.{system}.log"),
            )
            command = [sys.executable, str(HERE), "--one", name, system, "--out", str(part)]
            with log.open("w") as file:
                try:
                    subprocess.run(
                        command,
                        stdout=file,
                        stderr=file,
                        stdin=subprocess.DEVNULL,
                        timeout=options.timeout,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    file.write(f"\nended after {options.timeout} s\n")
            row = (
                json.loads(part.read_text())
                if part.exists()
                else {"case": name, "system": system, "failed": str(log)}
            )
            rows.append(row)
            first = next((r for r in rows if r["case"] == name and "seconds" in r), None)
            ratio = row["seconds"] / first["seconds"] if first and "seconds" in row else float("nan")
            seconds, speed = (row.get(k, float("nan")) for k in ("seconds", "tokens_per_second"))
            print(
                f"{name:<14}{system:<12}{seconds:>9.3f} s{speed:>14,.0f} tokens/s{ratio:>8.2f}×",
                flush=True,
            )
            options.out.write_text(json.dumps({"benchmark": "gpu", "rows": rows}, indent=1))
    print(json.dumps({"benchmark": "gpu", "rows": rows}))


if __name__ == "__main__":
    main()
