"""verl's metrics and the answers log become the run store's metrics, evaluations, samples and ledger, live."""

import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rlkit.compute import PHASES, Ledger, Shape, Work
from rlkit.config import RunConfig
from rlkit.data import TaskStream
from rlkit.environments.rollout import rollout_metrics
from rlkit.errors import RunStopped
from rlkit.evaluation.heldout import summarise
from rlkit.results.store import RunStore, read_jsonl
from rlkit.samplers.rollouts import ENVIRONMENT
from rlkit.training.batches import comparable, rollout_summary
from rlkit.training.tracking import Trackers
from rlkit.types import Reward, Rollout, Task
from rlkit.verl.answers import AnswerReader
from rlkit.verl.layout import Files
from rlkit.verl.tail import Tail

PATIENCE = 15.0  # seconds that answers of a logged step may take to show in a shared folder
SAMPLES_KEPT = 8
MISSING = "verl returned no answer"
VALIDATION = ("val-core/", "val-aux/")  # verl's means over bootstraps; the store has pass@k instead


class Results:
    """Reads one attempt's files and writes the run store. `poll` is called again and again while verl runs.

    Args:
        shape: of the model that trains, for the ledger.
        held_out: the tasks of an evaluation.
    """

    def __init__(
        self, config: RunConfig, store: RunStore, files: Files, shape: Shape, held_out: Sequence[Task]
    ) -> None:
        self.config, self.store, self.shape, self.held_out = config, store, shape, held_out
        self.answers, self.ledger = AnswerReader(files.answers), Ledger()
        self.stream = TaskStream(config, held_out)
        self.trackers = Trackers(config, store.folder)
        self.step = 0
        self._metrics = Tail(files.attempt / "metrics.jsonl")
        self._lines: list[tuple[float, dict[str, Any]]] = []
        self._warned = False

    @property
    def progress(self) -> tuple[int, int]:
        """Grows whenever verl gets anything done: lines of metrics, answers."""
        return self._metrics.offset, self.answers.seen

    def resume(self, step: int, before: Sequence[Path]) -> None:
        """Drop what was logged after a checkpoint and take up its ledger.

        verl saves before it evaluates and logs a step, so a run that died in between has a checkpoint whose
        step was never logged: its answers, in a folder of `before`, are counted now.
        """
        self.store.truncate(step)
        evaluations = self.store.info.get("evaluations", {})
        self.store.update(evaluations={k: v for k, v in evaluations.items() if int(k) <= step})
        lines = list(read_jsonl(self.store.folder / "metrics.jsonl"))
        if lines:
            self.ledger, self.step = _ledger(lines[-1]), int(lines[-1]["step"])
        for folder in reversed(before if self.step < step else ()):
            self.answers, current = AnswerReader(folder), self.answers
            self.answers.poll()
            found = self.answers.count(step, "train")
            if found:
                self._log(step, self._train(step))
            self.answers = current
            if found:
                break

    def poll(self, ended: bool = False) -> None:
        """Take what is there. `ended`: nothing more will come, so missing answers are not waited for.

        Raises:
            RunStopped: more than reward.max_error_rate of a step could not be graded.
        """
        self.answers.poll()
        self._lines += [(time.monotonic(), json.loads(line)) for line in self._metrics.lines()]
        while self._lines and (ended or self._complete(*self._lines[0])):
            _, line = self._lines.pop(0)
            self._take(int(line["step"]), line["data"])

    def _complete(self, came: float, line: dict[str, Any]) -> bool:
        """All answers of a step are here, or were waited for long enough."""
        c, step, data = self.config, int(line["step"]), line["data"]
        train = c.data.train_batch_size * c.rollout.n if _trained(data) else 0
        tasks = sum(map(len, (self.held_out, *self.stream.suites.values())))
        test = tasks * c.evaluation.n if _evaluated(data) else 0
        here = self.answers.count(step, "train") >= train and self.answers.count(step, "test") >= test
        return here or time.monotonic() - came > PATIENCE

    def _take(self, step: int, data: dict[str, Any]) -> None:
        metrics = {k: v for k, v in data.items() if not k.startswith(VALIDATION)}
        self.ledger.time("step", data.get("timing_s/step", 0.0))
        if _trained(data):
            metrics |= self._train(step)
        if _evaluated(data):
            metrics |= self._evaluate(step)
        self._log(step, metrics)
        self._check_gap(data)

    def _log(self, step: int, metrics: dict[str, Any]) -> None:
        metrics |= self.ledger.metrics()
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float)}
        self.store.log(step, numbers)
        self.trackers.log(step, {k: v for k, v in numbers.items() if math.isfinite(v)})
        self.step = step

    def _train(self, step: int) -> dict[str, float]:
        c, rows = self.config, self.answers.take(step, "train")
        rollouts = _rollouts(rows, c.data.train_batch_size, c.rollout.n)
        metrics = rollout_summary(rollouts, c.rollout.n) | self.stream.exposure(step)
        acted = [r for r in rollouts if r.task.data_source.startswith(ENVIRONMENT)]
        if acted:
            metrics |= rollout_metrics(acted)
        kept, counts = comparable(rollouts, c.rollout.n, c.reward.max_error_rate, step)
        self._account(step, rollouts, [rollouts[i] for i in kept])
        self._log_samples(step, rows)
        return metrics | counts

    def _account(self, step: int, rollouts: list[Rollout], kept: list[Rollout]) -> None:
        """FLOPs of a step. The sampler computes a group's prompt once; verl's trainer, for every sequence."""
        c, ledger = self.config, self.ledger
        lengths = [(len(r.prompt_ids), len(r.response_ids)) for r in rollouts]
        ledger.add("rollout", self.shape.forward(Work.of([s for s, _ in lengths[:: c.rollout.n]], lengths)))
        ledger.sequences(self.shape, sum(s for s, _ in lengths), sum(t for _, t in lengths))
        ledger.turns += sum(r.turns for r in rollouts)
        ledger.environment_steps += sum(len(r.turn_rewards or ()) for r in rollouts)
        trained = [(len(r.prompt_ids), len(r.response_ids)) for r in kept]
        work = Work.of([s for s, _ in trained], trained)
        forward, training = self.shape.forward(work), self.shape.training(work)
        ledger.add("old_log_prob", forward)
        if c.actor.use_kl_loss or c.algorithm.use_kl_in_reward:
            ledger.add("ref", forward)
        if c.algorithm.adv_estimator == "gae":
            ledger.add("critic", forward + 3 * forward * c.critic.ppo_epochs)
        if c.algorithm.adv_estimator != "gae" or step > c.critic.warmup_steps:
            ledger.add("update", training * c.actor.ppo_epochs)
            mini = c.actor.ppo_mini_batch_size or c.data.train_batch_size
            ledger.optimizer_steps += c.actor.ppo_epochs * (c.data.train_batch_size // mini)

    def _log_samples(self, step: int, rows: list[dict[str, Any]]) -> None:
        c = self.config.trainer
        due = step in (1, c.total_training_steps) or (c.test_freq and step % c.test_freq == 0)
        if not due or not rows:
            return
        tasks = {task.id: task for task in self.stream.batch(step)}
        groups = {uid: i for i, uid in enumerate(dict.fromkeys(row["uid"] for row in rows))}
        keep = (
            "task_id",
            "data_source",
            "response",
            "value",
            "correct",
            "error",
            "finish_reason",
            "tokens",
            "turns",
        )
        self.store.log_samples(
            step,
            [
                {k: row[k] for k in keep}
                | {
                    "group": groups[row["uid"]],
                    "prompt": tasks[row["task_id"]].prompt[-1]["content"],
                    "ground_truth": tasks[row["task_id"]].ground_truth,
                }
                for row in rows[:: max(1, len(rows) // SAMPLES_KEPT)]
                if row["task_id"] in tasks
            ],
        )  # fmt: skip

    def _evaluate(self, step: int) -> dict[str, float]:
        suites = self.stream.suites
        found = {(row["task_id"], row["sample"]): row for row in self.answers.take(step, "test")}
        rows = [
            _evaluation_row(task, k, found.get((task.id, k))) | ({"suite": suite} if suites else {})
            for suite, tasks in [(None, self.held_out), *suites.items()]
            for task in tasks
            for k in range(self.config.evaluation.n)
        ]
        result = summarise(rows, self.config.evaluation.pass_at)
        self.store.log_evals(step, result.rows)
        if result.pass_at_1:
            value, low, high, prompts = result.pass_at_1
            summary = {"pass@1": value, "low": low, "high": high, "tasks": prompts}
            self.store.update(evaluations=self.store.info.get("evaluations", {}) | {str(step): summary})
        return result.metrics

    def _check_gap(self, data: dict[str, Any]) -> None:
        """Raises RunStopped where the config asks for a check and it fails; otherwise warns, once."""
        gap, rollout = data.get("rollout_corr/log_ppl_abs_diff"), self.config.rollout
        if gap is None or gap <= self.config.max_logprob_gap:
            return
        sentence = (
            f"step {self.step}: vLLM's and the trainer's log-probs differ by {gap:.3g} nats a token (mean over "
            f"sequences), more than rollout.max_logprob_gap = {self.config.max_logprob_gap:g}: the policy is not the "
            "one that sampled."
        )
        if rollout.sync_check_freq:
            raise RunStopped(sentence)
        if not self._warned:
            self._warned = True
            warnings.warn(sentence, stacklevel=3)

    def close(self) -> None:
        """Flush the trackers."""
        self.trackers.close()


def _trained(data: dict[str, Any]) -> bool:
    return "training/global_step" in data


def _evaluated(data: dict[str, Any]) -> bool:
    return any(key.startswith(VALIDATION) for key in data)


def _rollouts(rows: list[dict[str, Any]], prompts: int, n: int) -> list[Rollout]:
    """P·n rollouts, group by group; what verl lost is there as an answer that could not be graded."""
    groups: dict[str, list[Rollout]] = {}
    for row in rows:
        groups.setdefault(row["uid"], []).append(_rollout(row))
    nothing = np.zeros(0, np.int64)
    lost = Rollout(
        Task("unknown", (), None), nothing, nothing, nothing, np.zeros(0, np.float32), "error", turns=0,
        reward=Reward.failed(MISSING),
    )  # fmt: skip
    whole = [(group + [lost] * n)[:n] for group in groups.values()]
    return [r for group in whole + [[lost] * n] * (prompts - len(whole)) for r in group]


def _rollout(row: dict[str, Any]) -> Rollout:
    """An answer as far as it is known here: lengths, not tokens."""
    mask = np.zeros(row["response_tokens"], np.int64)
    mask[: row["tokens"]] = 1
    return Rollout(
        Task(row["data_source"], (), None),
        np.zeros(row["prompt_tokens"], np.int64),
        np.zeros(row["response_tokens"], np.int64),
        mask,
        np.zeros(row["response_tokens"], np.float32),
        row["finish_reason"],
        turns=row["turns"],
        turn_rewards=row["parts"].get("turn_rewards"),
        reward=Reward(row["value"], row["correct"], row["parts"], row["error"]),
    )


def _evaluation_row(task: Task, sample: int, row: dict[str, Any] | None) -> dict[str, Any]:
    known = row or {"error": MISSING, "tokens": 0, "finish_reason": "error", "response": ""}
    graded = {
        key: known.get(key) for key in ("correct", "value", "error", "tokens", "finish_reason", "response")
    }
    return {"task_id": task.id, "data_source": task.data_source, "sample": sample, **graded}


def _ledger(line: dict[str, Any]) -> Ledger:
    """The ledger whose metrics a logged line holds."""
    names = {"prompt_tokens": "tokens/prompt", "response_tokens": "tokens/response"}
    names |= {k: f"training/{k}" for k in ("optimizer_steps", "turns", "environment_steps")}
    ledger = Ledger(
        flops={phase: float(line.get(f"compute/{phase}_flops") or 0) for phase in PHASES},
        seconds={"step": float(line.get("compute/seconds") or 0)},
        train_6nt=float(line.get("compute/train_6nt_flops") or 0),
    )
    for name, key in names.items():
        setattr(ledger, name, int(line.get(key) or 0))
    assert set(asdict(ledger)) == {"flops", "seconds", "train_6nt", *names}
    return ledger
