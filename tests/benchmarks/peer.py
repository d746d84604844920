"""TRL's GRPO on the run of a params file: the same model, tasks in the same order, batch, rate, graders and held-out
problems as `rlkit run` has, so that both learning curves can be laid over each other.

    pip install --no-deps --target /tmp/trl trl==1.16.0
    PYTHONPATH=/tmp/trl python tests/benchmarks/peer.py params/verl_real.yaml --out trl.jsonl seed=10

Writes one JSON line an evaluation (step, pass@1 with its interval over problems, seconds of training so far) and one a
step (seconds, mean reward). Everything that the file leaves to the trainer has TRL's meaning: the loss is the mean over
all tokens of a step (`loss_type: dapo`), rewards are scaled by their group's standard deviation, the rate is constant.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).parent))
from gpu_systems import free_port, wait

import rlkit
from rlkit.data import TaskStream, held_out
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import Policy, load_policy, save_model
from rlkit.params import parse_overrides
from rlkit.rewards import Router
from rlkit.studies.file import load_one
from rlkit.training.optimizer import learning_rate
from rlkit.training.warm_start import warm_start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("params", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=32, help="sequences a forward pass of the update")
    parser.add_argument("--vllm", type=float, default=0.0, metavar="SHARE", help="sample with vLLM, of this memory")
    options = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore")
    alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    os.environ.update({name: str(value) for name, value in alone.items()})
    config = load_one(options.params, {"trainer.backend": "local", **parse_overrides(options.overrides)})
    steps, half, lora = config.trainer.total_training_steps, config.model.dtype == "bfloat16", config.model
    prompts, samples = config.data.train_batch_size, config.rollout.n
    problems = held_out(config)
    stream = TaskStream(config, problems)
    tasks = [task for step in range(1, steps + 1) for task in stream.batch(step)]
    folder = Path(tempfile.mkdtemp())
    started = warm_start(config)
    plain = config.model.model_copy(update={"lora_rank": 0})
    policy = load_policy(plain, path=started.folder if started else None, seed=config.seed)
    save_model(policy, folder / "model")
    size = parameter_counts(policy.model)["parameters_non_embedding"]
    rate, gpu = learning_rate(config.actor.optim, size), torch.cuda.is_available()
    part = min(options.micro_batch, prompts * samples)
    longest = config.data.max_prompt_length + config.data.max_response_length
    vllm = dict(use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=options.vllm)
    engine = {**vllm, "vllm_max_model_length": longest} if options.vllm else {}
    arguments = GRPOConfig(
        output_dir=str(folder / "out"), per_device_train_batch_size=part, num_generations=samples,
        gradient_accumulation_steps=prompts * samples // part, max_completion_length=config.data.max_response_length,
        temperature=config.rollout.temperature, beta=0.0, loss_type="dapo", learning_rate=rate,
        lr_scheduler_type="constant", warmup_steps=0, weight_decay=config.actor.optim.weight_decay,
        max_grad_norm=config.actor.optim.clip_grad, epsilon=config.actor.clip_ratio, shuffle_dataset=False,
        bf16=half and gpu,
        model_init_kwargs={"dtype": config.model.dtype}, report_to=[], save_strategy="no", logging_steps=1,
        max_steps=steps, disable_tqdm=True, use_cpu=not gpu, seed=config.seed, gradient_checkpointing=False, **engine,
    )  # fmt: skip
    rewards: list[float | None] = []  # None where an answer could not be graded
    with Router(config.reward) as router, options.out.open("w") as out:

        def write(**row) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(row, flush=True)

        def reward(completions, index, **_) -> list[float | None]:
            answers = [(tasks[i], message[0]["content"]) for i, message in zip(index, completions, strict=True)]
            rewards[:] = [graded.value for graded in router.grade(answers)]
            return rewards

        class Record(TrainerCallback):
            started = spent = 0.0

            def evaluate(self, step: int) -> None:
                model = Policy(trainer.model, policy.tokenizer, policy.stop_ids, policy.pad_id)
                was_training = trainer.model.training
                trainer.model.eval()
                found = rlkit.evaluate(
                    model, problems, config.evaluation.n, max_tokens=config.data.max_response_length, seed=step
                )
                trainer.model.train(was_training)
                rate = found.pass_at_1
                write(eval=step, value=rate.value, low=rate.low, high=rate.high, seconds=self.spent)

            def on_step_begin(self, args, state, *_, **__):
                if state.global_step == 0:
                    self.evaluate(0)
                self.started = time.perf_counter()

            def on_step_end(self, args, state, *_, **__):
                wait()
                seconds = time.perf_counter() - self.started
                self.spent += seconds
                known = [value for value in rewards if value is not None]
                write(step=state.global_step, seconds=seconds, reward=sum(known) / max(1, len(known)))
                if state.global_step % config.trainer.test_freq == 0:
                    self.evaluate(state.global_step)

        trainer = GRPOTrainer(
            model=str(folder / "model"), reward_funcs=reward, args=arguments, processing_class=policy.tokenizer,
            train_dataset=Dataset.from_list(
                [{"prompt": list(task.prompt), "index": i} for i, task in enumerate(tasks)]
            ),
            peft_config=LoraConfig(r=lora.lora_rank, lora_alpha=lora.lora_alpha, target_modules="all-linear")
            if lora.lora_rank
            else None,
            callbacks=[Record()],
        )  # fmt: skip
        trainer.log = lambda *_, **__: None  # one line a step is enough
        trainer.train()
        if gpu:
            write(peak_gib=torch.cuda.max_memory_reserved() / 2**30)


if __name__ == "__main__":
    main()
