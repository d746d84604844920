"""verl's metrics and the answers log become the run store's metrics, evaluations, samples and ledger, live."""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlkit.compute import PHASES, Ledger, Shape, Work
from rlkit.config import RunConfig
from rlkit.data import TaskStream
from rlkit.evaluation import summarise
from rlkit.results.store import ANSWER, RunStore, eval_row, read_jsonl
from rlkit.rewards import grading_metrics
from rlkit.training.batches import comparable
from rlkit.training.checks import problems
from rlkit.training.metrics import SAMPLES_KEPT, Tracker, rollout_summary
from rlkit.types import Reward, Rollout, Task
from rlkit.verl.compute_score import AnswerReader, Tail
from rlkit.verl.processes import Files

PATIENCE = 15.0  # seconds that answers of a logged step may take to show in a shared folder
MISSING = "verl returned no answer"
VALIDATION = ("val-core/", "val-aux/")  # verl's means over bootstraps; the store has pass@k instead
TRAINED = "training/global_step"  # in the metrics of a step that trained


class Results:
    """Reads one attempt's files and writes the run store. `poll` is called again and again while verl runs. `shape`
    is of the model that trains, for the ledger; `held_out` are the tasks of an evaluation."""

    def __init__(
        self, config: RunConfig, store: RunStore, files: Files, shape: Shape, held_out: Sequence[Task]
    ) -> None:
        self.config, self.store, self.shape, self.held_out = config, store, shape, held_out
        self.files, self.answers, self.ledger = files, AnswerReader(files.answers), Ledger()
        self.stream = TaskStream(config, held_out)
        self.tracker = Tracker(config, store.folder)
        self.step = 0
        self._metrics = Tail(files.attempt / "metrics.jsonl")
        self._lines: list[tuple[float, dict[str, Any]]] = []

    @property
    def progress(self) -> tuple[int, int]:
        """Grows whenever verl gets anything done: lines of metrics, answers."""
        return self._metrics.offset, self.answers.seen

    def resume(self, step: int) -> None:
        """Drop what was logged after a checkpoint and take up its ledger.

        verl saves before it evaluates and logs a step, so a run that died in between has a checkpoint whose
        step was never logged: its answers, in the log of an earlier attempt, are counted now.
        """
        self.store.truncate(step)
        if lines := list(read_jsonl(self.store.folder / "metrics.jsonl")):
            self.ledger, self.step = _ledger(lines[-1]), int(lines[-1]["step"])
        for folder in self.files.earlier if self.step < step else ():
            answers = AnswerReader(folder)
            answers.poll()
            if rows := answers.take(step, "train"):
                self._log(step, self._train(step, rows))
                break

    def poll(self, ended: bool = False) -> None:
        """Take what is there; once verl has `ended`, missing answers are not waited for. Raises RunStopped where more
        than reward.max_error_rate of a step could not be graded."""
        self.answers.poll()
        self._lines += [(time.monotonic(), json.loads(line)) for line in self._metrics.lines()]
        while self._lines and (ended or self._complete(*self._lines[0])):
            _, line = self._lines.pop(0)
            self._take(int(line["step"]), line["data"])

    def _complete(self, came: float, line: dict[str, Any]) -> bool:
        """All answers of a step are here, or were waited for long enough."""
        c, step, data = self.config, int(line["step"]), line["data"]
        train = c.data.train_batch_size * c.rollout.n if TRAINED in data else 0
        tasks = sum(map(len, (self.held_out, *self.stream.suites.values())))
        test = tasks * c.evaluation.n if _evaluated(data) else 0
        here = self.answers.count(step, "train") >= train and self.answers.count(step, "test") >= test
        return here or time.monotonic() - came > PATIENCE

    def _take(self, step: int, data: dict[str, Any]) -> None:
        metrics = {k: v for k, v in data.items() if not k.startswith(VALIDATION)}
        self.ledger.seconds += data.get("timing_s/step", 0.0)
        if TRAINED in data:
            metrics |= self._train(step, self.answers.take(step, "train"))
        if _evaluated(data):
            metrics |= self._evaluate(step)
        self._log(step, metrics)
        metrics |= {"policy/logprob_gap": data.get("rollout_corr/log_ppl_abs_diff", 0.0)}
        for kind, sentence in problems(metrics, self.config, step):
            self.store.warn(kind, f"step {step}: {sentence}")

    def _log(self, step: int, metrics: dict[str, Any]) -> None:
        metrics |= self.ledger.metrics()
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float)}
        self.store.log(step, numbers)
        self.tracker.log(step, {k: v for k, v in numbers.items() if math.isfinite(v)})
        self.step = step

    def _train(self, step: int, rows: list[dict[str, Any]]) -> dict[str, float]:
        c = self.config
        rollouts = _rollouts(rows, c.data.train_batch_size, c.rollout.n)
        metrics = rollout_summary(rollouts, c.rollout.n) | grading_metrics([r.reward for r in rollouts])
        metrics |= self.stream.exposure(step)
        kept, counts = comparable(rollouts, c.rollout.n, c.reward.max_error_rate, step)
        self._account(step, rollouts, [rollouts[i] for i in kept])
        self._log_samples(step, rows)
        return metrics | counts

    def _account(self, step: int, rollouts: list[Rollout], kept: list[Rollout]) -> None:
        """FLOPs of a step. The sampler computes a group's prompt once; verl's trainer, for every sequence."""
        c, ledger = self.config, self.ledger
        critic = c.algorithm.adv_estimator == "gae"
        ledger.sampled(self.shape, rollouts, c.rollout.n)
        trained = [(len(r.prompt_ids), len(r.response_ids)) for r in kept]
        work = Work.of([s for s, _ in trained], trained)
        forward = self.shape.forward(work)
        ledger.add("old_log_prob", forward)
        if c.actor.use_kl_loss or c.algorithm.use_kl_in_reward:
            ledger.add("ref", forward)
        if critic:
            ledger.add("critic", forward + 3 * forward * c.critic.ppo_epochs)
        if not critic or step > c.critic.warmup_steps:
            ledger.add("update", self.shape.training(work) * c.actor.ppo_epochs)
            ledger.optimizer_steps += c.actor.ppo_epochs * c.mini_batches

    def _log_samples(self, step: int, rows: list[dict[str, Any]]) -> None:
        c = self.config.trainer
        if step not in (1, c.total_training_steps) and (not c.test_freq or step % c.test_freq):
            return
        tasks = {task.id: task for task in self.stream.batch(step)}
        groups = {uid: i for i, uid in enumerate(dict.fromkeys(row["uid"] for row in rows))}
        samples = []
        for row in rows[:: max(1, len(rows) // SAMPLES_KEPT)]:
            if task := tasks.get(row["task_id"]):
                said = {k: row[k] for k in ("task_id", "data_source", "turns", *ANSWER)}
                asked = {"prompt": task.prompt[-1]["content"], "ground_truth": task.ground_truth}
                samples.append(said | asked | {"group": groups[row["uid"]]})
        self.store.log_samples(step, samples)

    def _evaluate(self, step: int) -> dict[str, float]:
        suites = self.stream.suites
        found = {(row["task_id"], row["sample"]): row for row in self.answers.take(step, "test")}
        lost = {"error": MISSING, "tokens": 0, "finish_reason": "error", "response": ""}
        rows = []
        for suite, tasks in [(None, self.held_out), *suites.items()]:
            of = {"suite": suite} if suites else {}
            for task, sample in ((task, k) for task in tasks for k in range(self.config.evaluation.n)):
                rows.append(eval_row(task, sample, found.get((task.id, sample), lost)) | of)
        result = summarise(rows, self.config.evaluation.pass_at)
        result.keep(self.store, step)
        return result.metrics


def _evaluated(data: dict[str, Any]) -> bool:
    return any(key.startswith(VALIDATION) for key in data)


def _rollouts(rows: list[dict[str, Any]], prompts: int, n: int) -> list[Rollout]:
    """P·n rollouts, group by group; what verl lost is there as an answer that could not be graded."""
    groups: dict[str, list[Rollout]] = {}
    for row in rows:
        groups.setdefault(row["uid"], []).append(_rollout(row))
    ids, logprobs = np.zeros(0, np.int64), np.zeros(0, np.float32)
    lost = Rollout(Task("unknown", (), None), ids, ids, ids, logprobs, "error", 0, reward=Reward(error=MISSING))
    whole = [(group + [lost] * n)[:n] for group in groups.values()]
    return [r for group in whole + [[lost] * n] * (prompts - len(whole)) for r in group]


def _rollout(row: dict[str, Any]) -> Rollout:
    """An answer as far as it is known here: lengths, not tokens."""
    prompt, response = (np.zeros(row[f"{part}_tokens"], np.int64) for part in ("prompt", "response"))
    mask, logprobs = np.arange(len(response)) < row["tokens"], np.zeros(len(response), np.float32)
    sampled = Task(row["data_source"], (), None), prompt, response, mask.astype(np.int64), logprobs
    graded = Reward(row["value"], row["correct"], row["parts"], row["error"])
    played = {"turns": row["turns"], "turn_rewards": row["parts"].get("turn_rewards")}
    return Rollout(*sampled, row["finish_reason"], **played, reward=graded)


def _ledger(line: dict[str, Any]) -> Ledger:
    """The ledger whose metrics a logged line holds."""
    counts = {"prompt_tokens": "tokens/prompt", "response_tokens": "tokens/response"}
    counts |= {k: f"training/{k}" for k in ("optimizer_steps", "turns", "environment_steps")}
    return Ledger(
        flops={phase: float(line.get(f"compute/{phase}_flops") or 0) for phase in PHASES},
        seconds=float(line.get("compute/seconds") or 0),
        train_6nt=float(line.get("compute/train_6nt_flops") or 0),
        **{name: int(line.get(key) or 0) for name, key in counts.items()},
    )
