"""rlkit beside TRL, vLLM and verl on one GPU: GRPO steps, decoding, syncs, packed runs, and the gap between sampler and
trainer.

    pip install --no-deps --target /tmp/trl trl==1.16.0
    PYTHONPATH=/tmp/trl python tests/benchmarks/gpu.py --out gpu.json [--cases step-3m decode-3m …]

Each system runs in a process of its own, one after the other on the same card. A step is rollout, reward,
update, the copy of the weights to the sampler and logging; medians are compared. The Qwen2.5 shapes have random
weights: only time and memory are measured with them. verl (step-3m-verl) starts for minutes, and not beside TRL: give
it --timeout 600 and no PYTHONPATH. --dry runs every other case at a size that a CPU does in seconds: does it run?
Prints a table and, last, one JSON line.
"""

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from gpu_systems import (
    SAMPLES,
    config_of,
    decode,
    device,
    open_session,
    policy_prompt,
    step_rlkit,
    step_trl,
    step_verl,
    wait,
)

HERE = Path(__file__).resolve()
LORA = {"lora": 32, "dtype": "bfloat16", "tokens": 512}
CASES = {
    "step-3m": {"model": "ladder-3m", "tokens": 32, "systems": ["rlkit", "trl"]},
    "step-3m-tf32": {"model": "ladder-3m", "tokens": 32, "tf32": True, "systems": ["rlkit", "trl"]},
    "step-3m-verl": {"model": "ladder-3m", "tokens": 32, "steps": 4, "systems": ["rlkit", "verl"]},
    "step-smollm2": {
        "model": "smollm2-135m-instruct", "tokens": 128, "lora": 16, "dtype": "bfloat16",
        "systems": ["rlkit", "rlkit-compiled", "rlkit-vllm", "trl-vllm"],
    },
    "step-0.5b": {"model": "qwen2.5-0.5b", **LORA, "steps": 2, "systems": ["rlkit", "rlkit-vllm", "trl-vllm"]},
    "step-1.5b": {
        "model": "qwen2.5-1.5b", **LORA, "steps": 2,
        "systems": ["rlkit", "rlkit-eager", "rlkit-vllm", "trl-vllm"],
    },
    "step-1.5b-4096": {
        "model": "qwen2.5-1.5b", **LORA, "tokens": 4096, "prompts": 16, "steps": 1, "trl_batch": 4,
        "systems": ["rlkit", "trl-vllm"],
    },
    "step-3b": {"model": "qwen2.5-3b", **LORA, "steps": 2, "systems": ["rlkit", "rlkit-vllm"]},
    "step-7b": {
        "model": "qwen2.5-7b", **LORA, "steps": 2, "checkpointing": True, "systems": ["rlkit", "rlkit-torch"],
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
    "gap-smollm2-fp16": {
        "model": "smollm2-135m-instruct", "tokens": 128, "dtype": "float16", "systems": ["torch", "vllm"],
    },
    "sync-1.5b": {"model": "qwen2.5-1.5b", **LORA, "tokens": 128, "systems": ["merged"]},
    "sync-7b": {"model": "qwen2.5-7b", **LORA, "tokens": 128, "systems": ["merged"]},
    "pack-3m": {"model": "ladder-3m", "tokens": 32, "steps": 20, "systems": ["1", "2", "4", "8"]},
}  # fmt: skip
VARIANTS = {
    "rlkit": {}, "rlkit-vllm": {"rollout.name": "vllm"}, "rlkit-torch": {"rollout.name": "torch"},
    "rlkit-eager": {"actor.use_torch_compile": False}, "rlkit-compiled": {"actor.use_torch_compile": True},
}  # fmt: skip
LONG = ("step-3m-verl", "step-1.5b-4096", "step-3b", "step-7b", "sync-7b")  # by name only
DRY = {"prompts": 2, "tokens": 4, "steps": 1, "dry": True}


def syncs(case: dict) -> dict:
    """Seconds in which vLLM has the policy's new weights, merged and loaded in process."""
    import torch

    from rlkit.models.loading import load_policy
    from rlkit.samplers.vllm import VllmSampler

    config = config_of(case)
    policy = load_policy(config.model, device=device())
    options: Any = dict(max_num_seqs=64, max_model_len=config.data.max_prompt_length + case["tokens"])
    sampler = VllmSampler(policy, **options)
    prompt, sync, sample = [policy_prompt(policy)], [], []
    for i in range(5):
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if "lora_B" in name:
                    parameter.add_(0.01)
        wait()
        start = time.perf_counter()
        sampler.sync(policy.model)
        wait()
        sync.append(time.perf_counter() - start)
        start = time.perf_counter()
        sampler.sample(prompt * 8, SAMPLES, seed=i, max_tokens=case["tokens"])
        sample.append(time.perf_counter() - start)
    total = statistics.median(sync[1:]) + statistics.median(sample[1:])
    return {"seconds": total, "sync": statistics.median(sync[1:]), "sample": statistics.median(sample[1:])}


def packed(case: dict, count: int) -> dict:
    """Steps a second of `count` runs at the same time on the card, all together, once each has had two steps."""
    from rlkit.training.loop import rl_step

    together = Path(os.environ["PACK_FOLDER"]) if "PACK_FOLDER" in os.environ else None
    if together is None:
        return pack(case, count)
    config, ends = config_of(case, **{"rollout.name": "torch"}), []
    with open_session(config) as session:
        for step in range(config.trainer.total_training_steps):
            if step == 2:
                meet(together, count)
            rl_step(session)
            wait()
            session.end_step()
            ends.append(time.perf_counter())
    kept = ends[2:]
    return {"seconds": (kept[-1] - ends[1]) / len(kept)}


def meet(folder: Path, count: int) -> None:
    """Wait until `count` processes have come here."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.01)


def pack(case: dict, count: int) -> dict:
    """`packed` in `count` processes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as results:
        command = [
            sys.executable,
            str(HERE),
            *(["--dry"] if case.get("dry") else []),
            "--one",
            case["name"],
            str(count),
        ]
        environment = {**os.environ, "PACK_FOLDER": folder}
        outs = [Path(results) / f"{i}.json" for i in range(count)]
        runs = [subprocess.Popen([*command, "--out", str(out)], env=environment) for out in outs]
        if any(run.wait() for run in runs):
            raise RuntimeError("a packed run failed")
        seconds = [json.loads(out.read_text())["seconds"] for out in outs]
    return {"seconds": statistics.median(seconds), "steps_per_second": sum(1 / s for s in seconds)}


def measure(name: str, system: str, dry: bool = False) -> dict:
    """One system on one case, in this process."""
    case: dict[str, Any] = CASES[name] | (DRY if dry else {}) | {"name": name}
    kind = name.partition("-")[0]
    if system == "verl":
        return step_verl(case)
    if kind == "step" and system.startswith("trl"):
        return step_trl(case, vllm=system.endswith("vllm"))
    if kind == "step":
        return step_rlkit(case, VARIANTS[system])
    if kind == "sync":
        return syncs(case)
    return packed(case, int(system)) if kind == "pack" else decode(case, system)


def one(name: str, system: str, out: Path, dry: bool) -> None:
    """Measure one system, write the result and end the process."""
    warnings.filterwarnings("ignore")
    if dry and device() == "cpu" and importlib.util.find_spec("vllm"):
        sys.path.insert(0, str(HERE.parents[1]))
        from vllm_on_cpu import keep_weights

        keep_weights()
    result = measure(name, system, dry)
    out.write_text(json.dumps({"case": name, "system": system, **result}))
    os._exit(0)  # engines leave threads behind that would hold a clean exit up


def in_a_process(name: str, system: str, options: argparse.Namespace) -> dict:
    """`one` in a process of its own, with a log beside the results; what failed says where its log is."""
    part, log = (options.out.with_suffix(f".{name}.{system}.{kind}") for kind in ("json", "log"))
    part.unlink(missing_ok=True)
    command = [
        sys.executable,
        str(HERE),
        "--one",
        name,
        system,
        "--out",
        str(part),
        *(["--dry"] if options.dry else []),
    ]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(options.timeout)
        except subprocess.TimeoutExpired:
            file.write(f"\nended after {options.timeout} s\n")
        finally:
            with suppress(ProcessLookupError):  # an engine in a process of its own would keep the card
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return json.loads(part.read_text()) if part.exists() else {"case": name, "system": system, "failed": str(log)}


def line(row: dict, rows: list[dict]) -> str:
    """A row of the table: seconds, tokens a second, and the ratio to the case's first system."""
    first = next((r for r in rows if r["case"] == row["case"] and "seconds" in r), None)
    seconds, speed = (row.get(k, float("nan")) for k in ("seconds", "tokens_per_second"))
    ratio = seconds / first["seconds"] if first else float("nan")
    if "steps_per_second" in row and first:
        ratio = row["steps_per_second"] / first["steps_per_second"]
    return f"{row['case']:<18}{row['system']:<16}{seconds:>9.3f} s{speed:>14,.0f} tokens/s{ratio:>8.2f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[c for c in CASES if c not in LONG], choices=CASES)
    parser.add_argument("--systems", nargs="+", help="only these")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--dry", action="store_true", help="tiny sizes: does every case run?")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "SYSTEM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], options.one[1], options.out, options.dry)
    rows = []
    for name in options.cases:
        for system in CASES[name]["systems"]:
            if options.systems and system not in options.systems:
                continue
            rows.append(in_a_process(name, system, options))
            print(line(rows[-1], rows), flush=True)
            options.out.write_text(json.dumps({"benchmark": "gpu", "rows": rows}, indent=1))
    print(json.dumps({"benchmark": "gpu", "rows": rows}))


if __name__ == "__main__":
    main()
