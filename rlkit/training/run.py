"""What a run holds: opened, restored, sampled from, logged and saved."""

import gc
import math
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from rlkit.compute import Ledger, Work
from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import content_hashes
from rlkit.environments.rollout import rollout_metrics
from rlkit.errors import RunStopped, UserError, plain_warnings
from rlkit.evaluation.heldout import EvaluationResult, measure
from rlkit.files import require_space
from rlkit.models.device import device_of, keep_to_share
from rlkit.models.kernels import compiled
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import load_policy
from rlkit.models.prompts import set_template_defaults
from rlkit.models.shapes import at_hand
from rlkit.registry import plugin_versions
from rlkit.results.store import LOGS, Run, RunStore, read_json
from rlkit.rewards import Router, grading_metrics, isolation, scorer_of
from rlkit.samplers import make_sampler
from rlkit.samplers.rollouts import ENVIRONMENT, Limits, grade, sample, sample_row
from rlkit.seeds import derive
from rlkit.training import checkpoint, state
from rlkit.training.batches import collate, comparable, rollout_summary, shortened, unequal
from rlkit.training.health import problems
from rlkit.training.preflight import check_window
from rlkit.training.probe import SyncProbe
from rlkit.training.tracking import Trackers
from rlkit.training.update import make_learning
from rlkit.training.warm_start import progress_shown, warm_start
from rlkit.types import Batch, Rollout, Task

SAMPLES_KEPT = 8


def acted(rollout: Rollout) -> bool:
    """Whether it is an episode in an environment."""
    return rollout.task.data_source.startswith(ENVIRONMENT)


def undecided(rollout: Rollout) -> bool:
    """Whether a score does not tell if the answer is right."""
    reward = rollout.reward
    return reward is not None and reward.value not in (None, 0.0, 1.0) and "acc" not in reward.parts


class TrainingRun:
    """A run in progress. Made by `TrainingRun.open`, a context manager that releases all it holds."""

    def __init__(self, config: RunConfig, store: RunStore, progress: bool) -> None:
        self.config, self.store, self.progress, self.step = config, store, progress, 0
        self.batches = 0  # of tasks that were drawn
        self.ledger, self.metrics, self._warned = Ledger(), {}, set()
        self.held_out = held_out(config)
        self.stream = TaskStream(config, self.held_out)
        if config.data.filter_overlong_prompts or not at_hand(
            config.model.path
        ):  # others: rlkit.training.preflight
            self.stream.check_prompts(self.held_out)
        self.device = device_of(config)
        if config.actor.use_torch_compile:
            compiled()  # says what is missing before anything is trained
        torch.backends.cuda.matmul.allow_tf32 = config.trainer.tf32
        store.pin(
            **scorer_of(config.reward),
            **plugin_versions(config.plugins),
            **content_hashes(self.stream, self.held_out),
        )
        keep_to_share()
        torch.set_num_threads(config.trainer.num_threads or torch.get_num_threads())
        store.update(phase="preparing the model")
        started = warm_start(config, progress_shown(config, store, progress))
        where = started.folder if started else None
        self.policy = load_policy(config.model, path=where, seed=config.seed, device=self.device)
        set_template_defaults(self.policy.tokenizer, config.data.apply_chat_template_kwargs)
        check_window(config, self.policy.base.config)
        self.ledger.add("sft", started.flops if started else 0.0)
        self.learning = make_learning(self.policy, config, self.ledger)
        self.sampler, why = make_sampler(self.policy, config)
        every = config.rollout.sync_check_freq
        self.probe = SyncProbe(config, self.policy, self.held_out) if every else None
        self.router = Router(config.reward)
        self.trackers = Trackers(config, store.folder)
        self.bar: Any = None
        if said := isolation(config.reward):
            self.warn(said, "scorer")
        self._greedy: list[Rollout] = []
        self._border = self._books()
        facts = {"warm_start": {k: v for k, v in vars(started).items() if k != "folder"}} if started else {}
        actor = self.learning.actor
        store.update(
            **parameter_counts(self.policy.model), **facts,
            learning_rate=actor.stepper.peak, sampler=why, compiled=self.learning.compiled,
            micro_batch_tokens=None if actor.passes.size else actor.passes.tokens, phase="",
        )  # fmt: skip
        if left_out := self.stream.left_out():
            counts = ", ".join(f"{count:,} of {name}" for name, count in left_out.items())
            self.warn(
                f"data.filter_overlong_prompts left out prompts of more than {config.data.max_prompt_length} tokens: "
                f"{counts}.",
                "overlong",
            )

    @classmethod
    @contextmanager
    def open(cls, config: RunConfig, root: Path, progress: bool) -> Iterator["TrainingRun"]:
        """Lock the run's folder, build everything, restore the newest whole checkpoint."""
        plain_warnings()
        with RunStore.open(config, root) as store:
            run = None
            try:
                run = cls(config, store, progress)
                run._restore()
                gc.collect()
                gc.freeze()  # every full collection would look through all of it: a tenth of a small model's steps
                yield run
            except BaseException as error:
                if run is not None and isinstance(error, RunStopped | UserError):
                    with suppress(UserError):  # of a full disk, which may be what ended the run
                        run._save_last_whole_step()
                asked = isinstance(error, KeyboardInterrupt)  # then there is nothing to explain
                store.update(
                    status="stopped" if asked or isinstance(error, RunStopped) else "failed",
                    reason=None if asked else str(error) or type(error).__name__,
                )
                raise
            finally:
                gc.unfreeze()
                if run is not None:
                    run.close()

    def _restore(self) -> None:
        root, total = self.store.checkpoints, self.config.trainer.total_training_steps
        found = checkpoint.newest(root, self.warn)
        if found is not None and self.config.trainer.resume_mode == "disable":
            raise UserError(
                f"trainer.resume_mode is 'disable', but {root} has a checkpoint of step {found}: use auto to continue "
                "it, another study or seed for a new run, or delete the folder."
            )
        require_space(
            self.store.folder, state.size_of(self) * (self.config.trainer.max_actor_ckpt_to_keep + 1)
        )
        if found is not None:
            state.load(self, checkpoint.folder_of(root, found))
            self.step = found
            self.sampler.sync(self.policy.model)
        elif self.config.trainer.resume_from_path is not None:
            found = self._fork(Path(self.config.trainer.resume_from_path))
        self.store.truncate(found if found is not None else -1)
        if self.progress and not self.finished:
            self.bar = tqdm(
                total=total, initial=self.step, desc=self.config.id, unit="step", dynamic_ncols=True
            )

    def _fork(self, folder: Path) -> int:
        """Go on from a checkpoint of another run, whose steps until then become this run's; returns its step."""
        parent, steps = folder.parents[1], self.config.trainer.total_training_steps
        if (wrong := checkpoint.problem(folder)) is not None:
            raise UserError(
                f"trainer.resume_from_path is {str(folder)!r}, which is no whole checkpoint ({wrong}): give one of "
                "outputs/<study>/runs/<id>/checkpoints/."
            )
        if (step := int(folder.name.removeprefix("step_"))) >= steps:
            raise UserError(
                f"trainer.resume_from_path is a checkpoint of step {step}, and trainer.total_training_steps is "
                f"{steps}: raise it."
            )
        try:
            state.load(self, folder)
        except (RuntimeError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise UserError(
                f"trainer.resume_from_path is {str(folder)!r}, a checkpoint of another model, adapter or critic: only "
                f"other keys can change ({str(error).splitlines()[0]})."
            ) from error
        self.step = step
        self.sampler.sync(self.policy.model)
        for name in (*LOGS, "evals.parquet"):
            if (parent / name).is_file():
                shutil.copyfile(parent / name, self.store.folder / name)
        before = read_json(parent / "run.json").get("evaluations", {})
        self.store.update(
            parent={"run": parent.name, "step": step},
            evaluations={k: v for k, v in before.items() if int(k) <= step},
        )
        return step

    @property
    def finished(self) -> bool:
        """All steps are done."""
        return self.step >= self.config.trainer.total_training_steps

    def due(self, frequency: int) -> bool:
        """Whether something that happens every `frequency` steps, and after the last, is due now."""
        return self.finished or (frequency > 0 and self.step % frequency == 0)

    def begin_step(self) -> None:
        """Count the step; from here on metrics belong to it."""
        self._border = self._books()
        self.step += 1
        self.metrics = {}
        self._began = time.perf_counter()

    def _books(self) -> tuple[Any, ...]:
        """What a step changes besides weights and moments, and the optimizer steps that change those."""
        learning = self.learning
        books = self.ledger.state_dict(), self.batches, learning.kl.value
        return *books, learning.optimizer_steps

    def _save_last_whole_step(self) -> None:
        """A checkpoint of the step before the one that failed, where that has not moved weights yet."""
        if self.step < 2 or self._border[-1] != self.learning.optimizer_steps:
            return
        ledger, self.batches, self.learning.kl.value, _ = self._border
        self.ledger.load_state_dict(ledger)
        self.step -= 1
        self.save()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Seconds of a phase, for this step's metrics and the ledger."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.metrics[f"timing_s/{phase}"] = self.metrics.get(f"timing_s/{phase}", 0.0) + seconds
        self.ledger.time(phase, seconds)

    def next_tasks(self) -> list[Task]:
        """The next batch of P tasks."""
        self.batches += 1
        return self.stream.batch(self.batches)

    def enough(self, rollouts: list[Rollout]) -> bool:
        """Whether a step's rollouts do: they are there, and with `algorithm.filter_groups` P groups of them differ.

        Raises:
            RunStopped: `max_num_gen_batches` were sampled, and they do not do.
        """
        c, section = self.config, self.config.algorithm.filter_groups
        if not rollouts or not section.enable:
            return bool(rollouts)
        found, size = sum(unequal(rollouts, c.rollout.n, section.metric)), c.data.train_batch_size
        sampled = len(rollouts) // (c.rollout.n * size)
        self.metrics["train/num_gen_batches"] = sampled
        if found < size and sampled == section.max_num_gen_batches:
            raise RunStopped(
                f"At step {self.step}, {found} of {len(rollouts) // c.rollout.n} groups had unequal rewards after "
                f"algorithm.filter_groups.max_num_gen_batches = {sampled} batches, and {size} are needed: raise it, or "
                "change the difficulty of the tasks."
            )
        return found >= size

    def sample(self, tasks: Sequence[Task]) -> list[Rollout]:
        """P·n rollouts of this step's tasks, group by group; and a greedy one of each where the estimator asks."""
        c, n = self.config, self.config.rollout.n
        with self.timed("gen"):
            rollouts = self._sampled(tasks, "rollout", n, c.rollout.temperature)
            if c.algorithm.needs.greedy:
                self._greedy = self._sampled(tasks, "greedy", 1, 0.0)
        return rollouts

    def _sampled(self, tasks: Sequence[Task], purpose: str, n: int, temperature: float) -> list[Rollout]:
        """`n` rollouts of each task, counted."""
        c = self.config
        limits = Limits(c.data.max_response_length, c.rollout.max_turn_length, temperature)
        rollouts = sample(
            tasks, self.sampler, self.policy, n=n, seed=derive(purpose, c.seed, self.step),
            limits=limits, prompt_limit=c.data.max_prompt_length,
        )  # fmt: skip
        prompts = [len(r.prompt_ids) for r in rollouts]
        lengths = [len(r.response_ids) for r in rollouts]
        work = Work.of(prompts[::n], list(zip(prompts, lengths, strict=True)))
        self.ledger.add("rollout", self.learning.actor.shape.forward(work))
        self.ledger.sequences(self.learning.actor.shape, sum(prompts), sum(lengths))
        self.ledger.turns += sum(r.turns for r in rollouts)
        self.ledger.environment_steps += sum(len(r.turn_rewards or ()) for r in rollouts if acted(r))
        tokens = self.metrics.get("perf/total_num_tokens", 0)
        self.metrics["perf/total_num_tokens"] = tokens + sum(prompts) + sum(lengths)
        return rollouts

    def grade(self, rollouts: list[Rollout]) -> None:
        """Set the reward of every rollout. Where a greedy response cannot be graded, its group cannot be either."""
        n = self.config.rollout.n
        with self.timed("reward"):
            grade(rollouts, self.router, self.policy)
            grade(self._greedy, self.router, self.policy)
        for i, greedy in enumerate(self._greedy):
            if greedy.reward and greedy.reward.error is not None:
                for r in rollouts[i * n : (i + 1) * n]:
                    r.reward = greedy.reward
        if self.config.reward.custom_reward_function and any(map(undecided, rollouts)):
            self.warn(
                "reward.custom_reward_function gives scores other than 0 and 1 and does not say which answers are "
                "right: pass@k counts scores of at least 1. Return a dict with score and acc.",
                "undecided",
            )
        for r in (*rollouts, *self._greedy):
            if r.reward is not None and r.turn_rewards is None:
                limit, buffer = self.config.data.max_response_length, self.config.reward.overlong_buffer
                r.reward = shortened(r.reward, len(r.response_ids), limit, buffer)

    def batch(self, rollouts: list[Rollout]) -> Batch | None:
        """What this step trains on: the rollouts that can be compared, padded. None where there are none."""
        c = self.config
        kept, counts = comparable(rollouts, c.rollout.n, c.reward.max_error_rate, self.step)
        self.metrics |= counts | grading_metrics([r.reward for r in rollouts])
        if c.algorithm.filter_groups.enable:
            differing = unequal(rollouts, c.rollout.n, c.algorithm.filter_groups.metric)
            chosen = set([g for g, differs in enumerate(differing) if differs][: c.data.train_batch_size])
            kept = [i for i in kept if i // c.rollout.n in chosen]
        if not kept:
            self.warn("No group of this step could be compared; nothing was learnt from it.")
            return None
        baselines = [float(r.reward.value or 0.0) if r.reward else 0.0 for r in self._greedy]
        batch = collate(
            [rollouts[i] for i in kept], [i // c.rollout.n for i in kept], self.policy.pad_id, self.device,
            cut=c.algorithm.truncated, baselines=baselines or None,
        )  # fmt: skip
        if not batch.mask.any():
            self.warn("All answers of this step were cut; nothing was learnt from it.")
            return None
        return batch

    def report(self, rollouts: list[Rollout], learnt: bool) -> None:
        """The step's metrics of what was sampled, a few samples, and warnings."""
        n = self.config.rollout.n
        if episodes := [r for r in rollouts if acted(r)]:
            self.metrics |= rollout_metrics(episodes)
        self.metrics |= rollout_summary(rollouts, n) | self.stream.exposure(self.batches)
        if not learnt:
            return
        if self.step == 1 or self.due(self.config.trainer.test_freq):
            every = max(1, len(rollouts) // SAMPLES_KEPT)
            rows = [sample_row(self.policy, r, i // n) for i, r in list(enumerate(rollouts))[::every]]
            self.store.log_samples(self.step, rows)
            self.trackers.log_samples(self.step, rows)
        for kind, sentence in problems(self.metrics, self.config):
            self.warn(sentence, kind)

    def warn(self, message: str, kind: str | None = None) -> None:
        """A warning; one of a kind is given once a run, and the first of each kept in run.json."""
        kind, sentence = kind or message, f"step {self.step}: {message}"
        if kind not in self._warned:
            self._warned.add(kind)
            self.store.update(warnings={kind: sentence, **self.store.info.get("warnings", {})})
            with tqdm.external_write_mode() if self.bar else nullcontext():  # not amid the bar
                warnings.warn(sentence, stacklevel=3)

    def sync(self) -> None:
        """Give the sampler the new weights."""
        with self.timed("update_weights"):
            self.sampler.sync(self.policy.model)
        if self.probe is not None and self.due(self.config.rollout.sync_check_freq):
            self.store.log_sync(self.probe.check(self.sampler, self.step))

    def evaluate(self) -> EvaluationResult:
        """Measure pass@1 on the held-out tasks and keep every sample."""
        c = self.config
        with self.timed("testing"):
            result = measure(
                self.policy, self.sampler, self.router, self.held_out, c.evaluation,
                max_tokens=c.data.max_response_length, max_turn_tokens=c.rollout.max_turn_length,
                seed=derive("eval", c.seed, self.step), suites=self.stream.suites,
            )  # fmt: skip
        self.store.log_evals(self.step, result.rows)
        self.metrics |= result.metrics
        summary = self.store.info.get("evaluations", {})
        if result.pass_at_1:
            value, low, high, prompts = result.pass_at_1
            summary = summary | {
                str(self.step): {"pass@1": value, "low": low, "high": high, "tasks": prompts}
            }
        self.store.update(evaluations={k: v for k, v in summary.items() if int(k) <= self.step})
        if self.step == 0:
            self._emit()
        return result

    def end_step(self) -> None:
        """Log the step's metrics."""
        seconds = time.perf_counter() - self._began
        self.metrics["timing_s/step"] = seconds
        self.ledger.time("step", seconds)
        if self.bar is not None:
            shown = {
                "reward": self.metrics.get("critic/score/mean"),
                "pass@1": self.metrics.get("eval/pass@1"),
            }
            self.bar.set_postfix({k: f"{v:.3f}" for k, v in shown.items() if v is not None}, refresh=False)
            self.bar.update()
        self._emit()

    def _emit(self) -> None:
        self.metrics |= self.ledger.metrics()
        numbers: dict[str, float] = {
            k: v for k, v in self.metrics.items() if isinstance(v, int | float) and not math.isnan(v)
        }
        self.store.log(self.step, self.metrics)
        self.trackers.log(self.step, numbers)

    def save(self) -> None:
        """Write a checkpoint of this step."""
        keep = self.config.trainer.max_actor_ckpt_to_keep
        if self.step not in checkpoint.steps(self.store.checkpoints):
            checkpoint.save(self.store.checkpoints, self.step, lambda folder: state.write(self, folder), keep)

    def result(self, status: str) -> Run:
        """Close the books: status and summary in run.json, and the Run."""
        evaluations = self.store.info.get("evaluations", {})
        order = sorted(evaluations, key=int)
        summary = {
            "steps": self.step,
            "first": evaluations[order[0]] if order else None,
            "last": evaluations[order[-1]] if order else None,
            "flops": self.ledger.total,
            "seconds": self.ledger.seconds.get("step", 0.0),
            **parameter_counts(self.policy.model),
        }
        if self.device == "cuda":
            before = self.store.info.get("summary", {}).get(
                "gpu_memory", 0
            )  # of a run that is only looked at again
            summary["gpu_memory"] = max(before, torch.cuda.max_memory_reserved())
        self.store.update(status=status, summary=summary, reason=None)
        return Run(self.config.id, self.store.folder, status, summary)

    def close(self) -> None:
        """Release workers, the sampler's memory, trackers and the bar."""
        self.router.close()
        with suppress(RuntimeError):  # of a GPU that has failed, whose own error is on its way
            self.sampler.release()
        self.trackers.close()
        if self.bar is not None:
            self.bar.close()
