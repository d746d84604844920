"""One GRPO step of the same model, prompts and samples in rlkit and in TRL, on the same CPU threads.

    pip install --no-deps --target /tmp/trl trl==1.16.0
    PYTHONPATH=/tmp/trl python tests/benchmarks/step.py [--sizes ladder-30k ladder-300k] [--steps 10]

A step is rollout, reward, advantages, update and the copy of the weights to the sampler; logging is part of
both. Two settings:

    full      random weights, every response about as long as the limit of 16 tokens
    answers   weights that were taught to answer and stop, so that responses have the 1 to 5 tokens of a
              ladder study

The systems take turns, a step each, so that a machine whose speed drifts treats them alike; medians are
compared. The last line is JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch

from rlkit.config import RunConfig
from rlkit.models.loading import load_policy, save_model
from rlkit.params import override, validate
from rlkit.training.loop import rl_step
from rlkit.training.run import TrainingRun
from rlkit.training.warm_start import warm_start

PROMPTS, SAMPLES, TOKENS = 64, 8, 16
SIZES = ["ladder-30k", "ladder-100k", "ladder-300k", "ladder-1m", "ladder-3m"]


def letters(response: str) -> float:
    """A reward that varies within every group of random text: the share of letters."""
    return sum(c.isalpha() for c in response) / max(1, len(response))


def compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float:
    """`letters` with verl's signature, for rlkit's router."""
    return letters(solution_str)


def config(size: str, setting: str, folder: str) -> RunConfig:
    """The run that both systems take a step of."""
    base = {
        "model": {"path": size, "warm_start": {"kind": "none" if setting == "full" else "fixed", "steps": 60}},
        "data": {"train": [{"kind": "arithmetic"}, {"kind": "string_trace"}], "train_batch_size": PROMPTS},
        "rollout": {"n": SAMPLES},
        "trainer": {"total_training_steps": 10_000},
    }
    base["data"]["max_response_length"] = TOKENS
    if setting == "full":
        base["reward"] = {"custom_reward_function": f"{Path(__file__).resolve()}:compute_score"}
    return validate(RunConfig, override(base, {"study": "benchmark"}))


def rlkit_stepper(c: RunConfig, folder: Path):
    """A function that takes one step in rlkit."""
    opened = TrainingRun.open(c, folder, progress=False)
    session = opened.__enter__()

    def step() -> None:
        rl_step(session)
        session.end_step()

    return step, lambda: opened.__exit__(None, None, None)


def trl_stepper(c: RunConfig, folder: Path):
    """A function that takes one optimizer step in TRL: one generation batch of P·n, one update."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    started = warm_start(c)
    policy = load_policy(c.model, path=started.folder if started else None)
    save_model(policy, folder / "model")
    from rlkit.data import TaskStream, held_out

    stream = TaskStream(c, held_out(c))
    tasks = [t for step in range(1, 20) for t in stream.batch(step)]
    rows = Dataset.from_list([{"prompt": list(t.prompt), "ground_truth": str(t.ground_truth)} for t in tasks])

    def reward(completions, ground_truth, **_) -> list[float]:
        texts = [message[0]["content"] for message in completions]
        if started is None:
            return [letters(text) for text in texts]
        return [float(text.strip() == truth) for text, truth in zip(texts, ground_truth, strict=True)]

    arguments = GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=PROMPTS * SAMPLES, num_generations=SAMPLES,
        max_completion_length=TOKENS, temperature=1.0, learning_rate=1e-4, beta=0.0, bf16=False, fp16=False,
        gradient_checkpointing=False, use_cpu=True, report_to=[], save_strategy="no", logging_steps=1, max_steps=10_000,
        disable_tqdm=True, lr_scheduler_type="constant", max_grad_norm=1.0, dataloader_num_workers=0,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(folder / "model"), reward_funcs=reward, args=arguments, train_dataset=rows,
        processing_class=policy.tokenizer,
    )  # fmt: skip
    trainer.log = lambda *_, **__: None  # its printing, not its measuring
    trainer.create_optimizer_and_scheduler(10_000)
    trainer.current_gradient_accumulation_steps = 1
    batches = iter(trainer.get_train_dataloader())

    def step() -> None:
        trainer.training_step(trainer.model, next(batches), None)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1

    return step, lambda: None


def compare(size: str, setting: str, steps: int) -> dict:
    """Median seconds of both, and their ratio."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        c = config(size, setting, temporary)
        systems = {"rlkit": rlkit_stepper(c, folder / "runs"), "trl": trl_stepper(c, folder)}
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for i in range(steps + 2):
            for name, (step, _) in systems.items():
                start = time.perf_counter()
                step()
                if i >= 2:
                    seconds[name].append(time.perf_counter() - start)
        for _, close in systems.values():
            close()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"size": size, "setting": setting, **medians, "ratio": medians["trl"] / medians["rlkit"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--settings", nargs="+", default=["full", "answers"])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    rows = []
    print(f"{'model':<12}{'setting':<10}{'rlkit s':>10}{'TRL s':>10}{'TRL / rlkit':>13}")
    for setting in options.settings:
        for size in options.sizes:
            row = compare(size, setting, options.steps)
            rows.append(row)
            print(f"{size:<12}{setting:<10}{row['rlkit']:>10.3f}{row['trl']:>10.3f}{row['ratio']:>13.2f}", flush=True)
    print(json.dumps({"benchmark": "step", "threads": options.threads, "rows": rows}))


if __name__ == "__main__":
    main()
