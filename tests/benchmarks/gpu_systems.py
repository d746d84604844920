"""The systems that tests/benchmarks/gpu.py compares, each measured in the process that calls it."""

import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

HERE = Path(__file__).resolve()
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bfloat16 FLOP/s of the data sheets
SAMPLES = 8  # a prompt


def letters(response: str) -> float:
    """A reward that varies within groups of random text: the share of letters."""
    return sum(c.isalpha() for c in response) / max(1, len(response))


def compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float:
    """`letters` with verl's signature, for rlkit's router."""
    return letters(solution_str)


def device() -> str:
    """The GPU; the CPU for a dry run."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def wait() -> None:
    """Until the GPU has done all that it was told."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def peak_gib() -> float:
    """Most memory that torch held, GiB: engines that slept meanwhile are counted."""
    import torch

    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def filled_tokenizer(vocab: int) -> Any:
    """The ladder's byte tokenizer with `vocab` ids, of which those beyond the bytes are words w0, w1 …"""
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    from rlkit.models.ladder import END, PAD, ROLES, START, byte_tokenizer

    plain: Any = byte_tokenizer()
    core = json.loads(plain.backend_tokenizer.to_str())
    words, specials = core["model"]["vocab"], (PAD, START, END, *ROLES)
    core["added_tokens"] = []
    words |= {f"w{i}": i for i in range(len(words), vocab - len(specials))}
    filled = Tokenizer.from_str(json.dumps(core))
    filled.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials[:3]])
    filled.add_tokens([AddedToken(t, normalized=False, special=False) for t in ROLES])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=filled, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = plain.chat_template
    return tokenizer


def qwen_folder(name: str, dry: bool) -> str:
    """A folder with random weights of a Qwen2.5 shape, of one layer and a small vocabulary for a dry run."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from rlkit.models.shapes import shape_of

    folder = Path(tempfile.gettempdir()) / (f"{name}-dry" if dry else name)
    if (folder / "config.json").exists():
        return str(folder)
    s = shape_of(name)
    if dry:
        s = replace(s, layers=1, hidden=64 * s.heads // s.kv_heads, intermediate=64, vocab=400)
    tokenizer = filled_tokenizer(s.vocab)
    config = Qwen2Config(
        vocab_size=s.vocab, hidden_size=s.hidden, intermediate_size=s.intermediate, num_hidden_layers=s.layers,
        num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, tie_word_embeddings=s.tied,
        max_position_embeddings=32_768, eos_token_id=cast(int, tokenizer.eos_token_id),
        pad_token_id=cast(int, tokenizer.pad_token_id),
    )  # fmt: skip
    with torch.device(device()):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    building = folder.with_name(f"{folder.name}.building")
    model.save_pretrained(building)
    tokenizer.save_pretrained(building)
    os.replace(building, folder)
    return str(folder)


def path_of(case: dict) -> str:
    """What `model.path` is for a case; a dry run has the smallest of its kind."""
    if case["model"].startswith("qwen"):
        return qwen_folder(case["model"], case.get("dry", False))
    return "ladder-10k" if case.get("dry") else case["model"]


def config_of(case: dict, **changes) -> Any:
    """The run that every system takes a step of: 64 prompts × 8 samples unless the case says otherwise."""
    from rlkit.config import RunConfig
    from rlkit.params import override, validate

    base = {
        "study": "benchmark",
        "model": {
            "path": path_of(case), "dtype": case.get("dtype", "float32"), "lora_rank": case.get("lora", 0),
            "lora_alpha": 32, "warm_start": {"kind": "none"},
            "enable_gradient_checkpointing": case.get("checkpointing", False),
        },
        "data": {
            "train": [{"kind": "arithmetic"}, {"kind": "string_trace"}], "train_batch_size": case.get("prompts", 64),
            "max_response_length": case["tokens"],
        },
        "rollout": {"n": SAMPLES, "max_logprob_gap": 1.0},
        "reward": {"custom_reward_function": f"{HERE}:compute_score"},
        "trainer": {
            "total_training_steps": case.get("steps", 8) + 2, "test_freq": 0, "save_freq": 0, "device": device(),
            "tf32": case.get("tf32", False),
        },
        "evaluation": {"size": 16, "n": 1},
    }  # fmt: skip
    config = validate(RunConfig, override(base, changes))
    return config if device() == "cpu" else with_largest_micro_batch(config)


def with_largest_micro_batch(config: Any) -> Any:
    """The config with as many tokens a forward pass as fit, at most 131,072."""
    from rlkit.sizing.devices import device_named
    from rlkit.sizing.memory import Plan, memory, room, total

    lengths, card = (64, config.data.max_response_length), device_named("here")
    for tokens in (131_072 >> i for i in range(12)):
        sizes = config.actor.model_copy(update={"micro_batch_tokens": tokens})
        config = config.model_copy(update={"actor": sizes})
        if total(memory(Plan(config, card, lengths))) <= room(card):
            break
    return config


@contextmanager
def open_session(config: Any) -> Iterator[Any]:
    """A session in a folder that is thrown away."""
    from rlkit.training.run import TrainingRun

    with tempfile.TemporaryDirectory() as folder, TrainingRun.open(config, Path(folder), progress=False) as session:
        yield session


def step_rlkit(case: dict, changes: dict) -> dict:
    """Seconds by phase of rlkit's steps, peak memory, and how much of the card they use; beside the prediction."""
    from rlkit.sizing.memory import Plan, memory, total
    from rlkit.training.loop import rl_step

    config, rows, updates = config_of(case, **changes), [], []
    with open_session(config) as session:
        info, sleeps = session.store.info, getattr(session.sampler, "sleeps", False)
        for _ in range(config.trainer.total_training_steps):
            before = session.ledger.flops["update"]
            rollouts = rl_step(session)
            wait()
            session.end_step()
            rows.append(dict(session.metrics))
            updates.append(session.ledger.flops["update"] - before)
    longest = max(len(r.prompt_ids) for r in rollouts), config.data.max_response_length
    kept = rows[2:] or rows
    names = [name for name in kept[0] if name.startswith("timing_s/")]
    phases = {n.removeprefix("timing_s/"): statistics.median(r[n] for r in kept) for n in names}
    tokens = statistics.median(r["response_length/mean"] for r in kept) * config.data.train_batch_size * SAMPLES
    result = {
        "seconds": phases["step"], "phases": phases, "sampler": info["sampler"], "compiled": info["compiled"],
        "tokens_per_second": tokens / phases["gen"],
        "peak_gib": peak_gib(), "gap": statistics.median(r["policy/logprob_gap"] for r in kept),
        "micro_batch_tokens": config.actor.micro_batch_tokens,
    }  # fmt: skip
    if device() == "cpu":
        return result
    import torch

    from rlkit.sizing.devices import device_named

    card = torch.cuda.get_device_name()
    peak = next((v for k, v in PEAK.items() if k in card), float("nan"))
    predicted = memory(Plan(config, device_named("here"), longest))
    result |= {"predicted_gib": total(predicted) / 2**30}
    if not sleeps:  # otherwise torch counts the engine and the update together
        result |= {"allocated_gib": torch.cuda.max_memory_allocated() / 2**30}
    return result | {"card": card, "update_mfu": statistics.median(updates[2:]) / phases["update_actor"] / peak}


def step_trl(case: dict, vllm: bool) -> dict:
    """Seconds of TRL's optimizer steps of the same size, by its own training loop."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rlkit.data import TaskStream, held_out
    from rlkit.models.loading import load_policy, save_model

    alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    for name, value in alone.items():
        os.environ.setdefault(name, str(value))
    config, ends = config_of(case), []
    folder = Path(tempfile.mkdtemp())
    policy = load_policy(config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"}))
    save_model(policy, folder / "model")
    stream = TaskStream(config, held_out(config))
    tasks = [t for step in range(1, config.trainer.total_training_steps + 1) for t in stream.batch(step)]
    half, total = case.get("dtype") == "bfloat16", config.data.train_batch_size * SAMPLES
    part = min(total, case.get("trl_batch", 512 if case["tokens"] <= 32 else 64 if case["tokens"] <= 128 else 16))

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            wait()
            ends.append(time.perf_counter())

    colocated = dict(
        use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.3,
        vllm_max_model_length=config.data.max_prompt_length + case["tokens"],
    ) if vllm else {}  # fmt: skip
    arguments = GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=part, num_generations=SAMPLES,
        gradient_accumulation_steps=total // part, max_completion_length=case["tokens"], temperature=1.0, beta=0.0,
        learning_rate=1e-5, bf16=half, tf32=case.get("tf32", False),
        gradient_checkpointing=case.get("checkpointing", False), report_to=[],
        save_strategy="no", logging_steps=1, max_steps=config.trainer.total_training_steps, disable_tqdm=True,
        use_cpu=device() == "cpu", model_init_kwargs={"dtype": "bfloat16" if half else "float32"}, **colocated,
    )  # fmt: skip
    rank = case.get("lora")
    trainer = GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=lambda completions, **_: [letters(c[0]["content"]) for c in completions],
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": list(t.prompt)} for t in tasks]),
        processing_class=policy.tokenizer,
        peft_config=LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear") if rank else None,
        callbacks=[Clock()],
    )
    trainer.train()
    return {"seconds": statistics.median(b - a for a, b in pairwise(ends[1:])), "peak_gib": peak_gib()}


def step_verl(case: dict) -> dict:
    """Seconds of the same steps by verl's own trainer, and those before its first answer."""
    import rlkit

    config = config_of(case, **{"trainer.backend": "verl", "model.dtype": "bfloat16"})
    with tempfile.TemporaryDirectory() as root:
        run = rlkit.train(config, root=root, progress=False)
        table, info = rlkit.read(run.folder), json.loads((run.folder / "run.json").read_text())
    steps = table[(table.metric == "timing_s/step") & (table.step > 2)].value
    return {"seconds": float(steps.median()), "startup_seconds": info["startup_seconds"]}


def decode(case: dict, system: str) -> dict:
    """Tokens a second of one sampler at prompts × 8 sequences of full length, best of three calls."""
    import numpy as np

    from rlkit.data import TaskStream, held_out
    from rlkit.models.loading import load_policy

    config = config_of(case, **{"rollout.name": "torch" if system == "torch" else "vllm"})
    policy = load_policy(config.model, device="cpu" if system == "offline" else device())
    policy.stop_ids = policy.stop_ids if "smollm2" in case["model"] else ()
    tasks = TaskStream(config, held_out(config)).batch(1)
    prompts = [np.array(policy.encode_all([t.prompt])[0]) for t in tasks]
    sampler, seconds = sampler_of(system, policy, config), []
    for i in range(4):
        start = time.perf_counter()
        groups = sampler.sample(prompts, SAMPLES, seed=i, max_tokens=case["tokens"])
        seconds.append(time.perf_counter() - start)
    tokens = sum(len(s.ids) for g in groups for s in g)
    result = {"seconds": min(seconds[1:]), "tokens_per_second": tokens / min(seconds[1:]), "peak_gib": peak_gib()}
    return result | (gap(policy, prompts, groups) if "smollm2" in case["model"] else {})


def sampler_of(system: str, policy: Any, config: Any) -> Any:
    """The sampler by name; `offline` is vLLM as its own users run it, in a process of its own, default settings."""
    from rlkit.samplers.choice import make_sampler

    if system != "offline":
        return make_sampler(policy, config)[0]
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # this process has looked at the card already
    from vllm import LLM, SamplingParams

    engine = LLM(
        config.model.path,
        dtype=str(policy.dtype).removeprefix("torch."),
        gpu_memory_utilization=0.8,
        max_model_len=1024,
    )

    class Offline:
        def sample(self, prompts, n, *, seed, max_tokens):
            p = SamplingParams(n=n, temperature=1.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
            requests: Any = [{"prompt_token_ids": ids.tolist()} for ids in prompts]
            outputs = engine.generate(requests, p, use_tqdm=False)
            return [[SimpleNamespace(ids=o.token_ids) for o in g.outputs] for g in outputs]

    return Offline()


def gap(policy: Any, prompts: list, groups: list) -> dict:
    """|Δ log p| a token between the sampler and the trainer's forward pass: mean, largest, histogram."""
    import numpy as np
    import torch

    from rlkit.models.decoder import Decoder
    from rlkit.training.learner import Rows, text_batch, token_logprobs

    flat = [(p, s) for p, g in zip(prompts, groups, strict=True) for s in g]
    batch = text_batch([p for p, _ in flat], [s.ids for _, s in flat], policy.pad_id, device())
    gaps = []
    for rows in torch.arange(len(flat), device=device()).split(64):
        part = Rows.of(batch, rows)
        with torch.no_grad():
            ours, _ = token_logprobs(Decoder(policy.model), part)
        theirs = np.concatenate([flat[i][1].logprobs for i in rows.tolist()])
        gaps.append(np.abs(ours[part.layout.present].float().cpu().numpy() - theirs))
    gaps = np.concatenate(gaps)
    edges = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    counts = np.histogram(gaps, [*edges, np.inf])[0].tolist()
    return {"gap_mean": float(gaps.mean()), "gap_max": float(gaps.max()), "edges": edges, "histogram": counts}


def policy_prompt(policy: Any) -> Any:
    """A prompt's ids."""
    import numpy as np

    return np.array(policy.encode_all([[{"role": "user", "content": "What is 17 + 25?"}]])[0])
