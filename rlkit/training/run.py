"""What a run holds: opened, restored, sampled from, logged and saved."""

import gc
import math
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from rlkit.compute import Ledger
from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import content_hashes
from rlkit.environments.rollout import Limits, rollout_metrics
from rlkit.errors import RunStopped, UserError, plain_warnings
from rlkit.evaluation.heldout import measure
from rlkit.files import require_space
from rlkit.models.device import device_of, keep_to_share
from rlkit.models.kernels import EAGER, compiled
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import load_policy
from rlkit.models.prompts import set_template_defaults
from rlkit.models.shapes import at_hand
from rlkit.registry import plugin_versions
from rlkit.results.store import BEST, LOGS, Run, RunStore, read_json
from rlkit.rewards import Router, isolation, scorer_of
from rlkit.samplers import make_sampler
from rlkit.samplers.rollouts import ENVIRONMENT, sample_row
from rlkit.seeds import derive
from rlkit.training import checkpoint
from rlkit.training.batches import rollout_summary
from rlkit.training.checks import check_window, phrase_of, problems
from rlkit.training.sampling import Feed
from rlkit.training.tracking import Trackers
from rlkit.training.update import Learning
from rlkit.training.warm_start import WarmStarted, warm_start
from rlkit.types import Rollout

SAMPLES_KEPT = 8


class TrainingRun:
    """A run in progress. Made by `TrainingRun.open`, a context manager that releases all it holds."""

    def __init__(self, config: RunConfig, store: RunStore, progress: bool) -> None:
        self.config, self.store, self.progress = config, store, progress
        self.step = 0  # begun
        self.stale = False  # the sampler's weights are older than the policy's
        self.evaluated: dict[int, dict[str, float]] = {}  # what early_stop and keep_best look at, by step
        self.ledger, self.metrics, self._warned = Ledger(), {}, set()
        self._before: tuple[int, Feed, dict[str, Any], float, int] | None = None  # of the step
        self.bar: Any = None
        self.held_out = held_out(config)
        self.stream = TaskStream(config, self.held_out)
        self.feed = Feed(config, self.stream)
        if config.data.filter_overlong_prompts or not at_hand(config.model.path):  # others: checks.preflight
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
        started = self._warm_start()
        where = started.folder if started else None
        self.policy = load_policy(config.model, path=where, seed=config.seed, device=self.device)
        set_template_defaults(self.policy.tokenizer, config.data.apply_chat_template_kwargs)
        self._phrase = phrase_of(config, self.policy.tokenizer)
        check_window(config, self.policy.base.config)
        self.ledger.add("sft", started.flops if started else 0.0)
        self.learning = Learning.of(self.policy, config, self.ledger)
        self.sampler, why = make_sampler(self.policy, config)
        self.router = Router(config.reward)
        self.trackers = Trackers(config, store.folder)
        made = {k: v for k, v in vars(started).items() if k != "folder"} if started else {}
        facts = {"warm_start": {"name": started.folder.name, **made}} if started else {}
        actor = self.learning.actor
        store.update(
            **parameter_counts(self.policy.model), **facts, learning_rate=actor.stepper.peak, sampler=why,
            compiled=actor.decoder.kernels is not EAGER,
            micro_batch_tokens=None if actor.passes.size else actor.passes.tokens, phase="",
        )  # fmt: skip
        self.warn(isolation(config.reward), "scorer")
        if left_out := ", ".join(f"{n:,} of {name}" for name, n in self.stream.left_out().items()):
            longest = (
                f"data.filter_overlong_prompts left out prompts of more than {config.data.max_prompt_length}"
            )
            self.warn(f"{longest} tokens: {left_out}.", "overlong")

    def _warm_start(self) -> WarmStarted | None:
        """The run's warm start, whose steps are told in run.json and on a bar while it is made."""
        name, hidden = f"warm start {self.config.model.path}", not self.progress
        with tqdm(desc=name, unit="step", dynamic_ncols=True, leave=False, delay=0.1, disable=hidden) as bar:

            def show(step: int, steps: int, loss: float) -> None:
                self.store.update(phase=f"warm start {step}/{steps}")
                bar.total = steps
                bar.set_postfix({"loss": f"{loss:.3f}"}, refresh=False)
                bar.update(step - bar.n)

            return warm_start(self.config, show)

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
        """Go on from the newest whole checkpoint, or from `trainer.resume_from_path`."""
        root, trainer = self.store.checkpoints, self.config.trainer
        found = checkpoint.newest(root, self.warn)
        if found is not None and trainer.resume_mode == "disable":
            raise UserError(
                f"trainer.resume_mode is 'disable', but {root} has a checkpoint of step {found}: use auto to continue "
                "it, another study or seed for a new run, or delete the folder."
            )
        trained = [p for p in self.policy.model.parameters() if p.requires_grad]
        trained = [*trained, *(self.learning.critic.trained().values() if self.learning.critic else ())]
        size = 1_000_000 + 3 * sum(p.numel() * p.element_size() for p in trained)  # weights and two moments
        require_space(self.store.folder, size * (trainer.max_actor_ckpt_to_keep + 1))
        if found is not None:
            self._load(checkpoint.folder_of(root, found))
        elif trainer.resume_from_path is not None:
            self._fork(Path(trainer.resume_from_path))
        self.store.truncate(self.step or -1)
        if self.progress and not self.finished:
            total, name = trainer.total_training_steps, self.config.id
            self.bar = tqdm(total=total, initial=self.step, desc=name, unit="step", dynamic_ncols=True)

    def _fork(self, folder: Path) -> None:
        """Go on from a checkpoint of another run, whose steps until then become this run's."""
        parent, steps = folder.parents[1], self.config.trainer.total_training_steps
        key = "trainer.resume_from_path is"
        if (wrong := checkpoint.problem(folder)) is not None:
            raise UserError(
                f"{key} {str(folder)!r}, which is no whole checkpoint ({wrong}): give one of "
                "outputs/<study>/runs/<id>/checkpoints/."
            )
        if (step := int(folder.name.removeprefix("step_"))) >= steps:
            raise UserError(
                f"{key} a checkpoint of step {step}, and trainer.total_training_steps is {steps}: raise it."
            )
        try:
            self._load(folder)
        except (RuntimeError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise UserError(
                f"{key} {str(folder)!r}, a checkpoint of another model, adapter or critic: only other keys can change "
                f"({str(error).splitlines()[0]})."
            ) from error
        for name in (*LOGS, "evals.parquet"):
            if (parent / name).is_file():
                shutil.copyfile(parent / name, self.store.folder / name)
        if (kept := self._best(self.config.trainer.keep_best)) is not None:
            best = checkpoint.folder_of(parent / BEST, kept)
            if best.is_dir():
                shutil.copytree(best, self.store.folder / BEST / best.name, dirs_exist_ok=True)
        evaluations = read_json(parent / "run.json").get("evaluations", {})
        evaluations = {k: v for k, v in evaluations.items() if int(k) <= step}
        self.store.update(parent={"run": parent.name, "step": step}, evaluations=evaluations)

    def _load(self, folder: Path) -> None:
        saved = checkpoint.load(folder, self.policy)
        self.learning.load_state_dict(saved)
        self.step, self.evaluated = saved["step"], saved.get("evaluated", {})
        self.ledger.load_state_dict(saved["ledger"])
        batches = saved.get("batches", self.step)  # of runs before there was a feed
        self.feed.load_state_dict(saved.get("feed", {"drawn": batches * self.config.data.train_batch_size}))
        self.stale = True

    def save(self) -> None:
        """Write a checkpoint of this step."""
        root, keep = self.store.checkpoints, self.config.trainer.max_actor_ckpt_to_keep
        if checkpoint.problem(checkpoint.folder_of(root, self.step)):  # none, or one that was passed over
            checkpoint.save(root, self.step, self._write, keep)

    def _write(self, folder: Path) -> None:
        books = {"step": self.step, "ledger": self.ledger.state_dict(), "evaluated": self.evaluated}
        state = books | {"feed": self.feed.state_dict()} | self.learning.state_dict()
        checkpoint.write(folder, self.policy, state)

    def _save_last_whole_step(self) -> None:
        """A checkpoint of the step before the one that failed, where that has not moved weights yet."""
        if self._before is None:
            return
        step, feed, ledger, coefficient, taken = self._before
        if step > 0 and taken == self.learning.optimizer_steps:
            self.step, self.feed, self.learning.kl.value = step, feed, coefficient
            self.ledger.load_state_dict(ledger)
            self.save()

    @property
    def finished(self) -> bool:
        """All steps are done, or `trainer.early_stop` says so."""
        return self.step >= self.config.trainer.total_training_steps or self.stopped_early is not None

    @property
    def stopped_early(self) -> str | None:
        """Why the run ends before its last step, where it does."""
        metric, patience = self.config.trainer.early_stop.metric, self.config.trainer.early_stop.patience
        best = self._best(metric)
        since = sum(step > (best or 0) and metric in found for step, found in self.evaluated.items())
        if metric is None or best is None or since < patience:
            return None
        value = self.evaluated[best][metric]
        return f"{metric} has not risen for {patience} evaluations since step {best} ({value:.3f})."

    def _best(self, metric: str | None) -> int | None:
        """The first step at which a metric of the evaluations was highest."""
        values = {step: found[metric] for step, found in self.evaluated.items() if metric in found}
        return max(values, key=lambda step: (values[step], -step), default=None)

    def due(self, frequency: int) -> bool:
        """Whether something that happens every `frequency` steps, and after the last, is due now."""
        return self.finished or (frequency > 0 and self.step % frequency == 0)

    def begin_step(self) -> None:
        """Count the step; from here on metrics belong to it."""
        books = self.step, self.feed.copy(), self.ledger.state_dict()
        self._before = *books, self.learning.kl.value, self.learning.optimizer_steps
        self.step += 1
        self.metrics = {}
        self._began = time.perf_counter()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Seconds of a phase, for this step's metrics and the ledger."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.metrics[f"timing_s/{phase}"] = self.metrics.get(f"timing_s/{phase}", 0.0) + seconds
        self.ledger.time(phase, seconds)

    def report(self, rollouts: list[Rollout], learnt: bool) -> None:
        """The step's metrics of what was sampled, a few samples, and warnings."""
        n = self.config.rollout.n
        if episodes := [r for r in rollouts if r.task.data_source.startswith(ENVIRONMENT)]:
            self.metrics |= rollout_metrics(episodes)
        self.metrics |= rollout_summary(rollouts, n)
        if self.config.rollout.interruption.enable:
            cut = sum(r.forced is not None for r in rollouts)
            self.metrics["response_length/interrupted"] = cut / len(rollouts)
        self.metrics |= self.stream.exposure(-(-self.feed.drawn // self.config.data.train_batch_size))
        if not learnt:
            return
        if self.step == 1 or self.due(self.config.trainer.test_freq):
            every = max(1, len(rollouts) // SAMPLES_KEPT)
            rows = [sample_row(self.policy, r, i // n) for i, r in list(enumerate(rollouts))[::every]]
            self.store.log_samples(self.step, rows)
            self.trackers.log_samples(self.step, rows)
        for kind, sentence in problems(self.metrics, self.config):
            if kind == "gap" and self.config.rollout.sync_check_freq:
                raise RunStopped(f"At step {self.step}: {sentence}")
            self.warn(sentence, kind)

    def warn(self, message: str | None, kind: str | None = None) -> None:
        """A warning where there is a message; one of a kind is given once a run, and kept in run.json."""
        kind, sentence = kind or message or "", f"step {self.step}: {message}"
        if message and kind not in self._warned:
            self._warned.add(kind)
            self.store.update(warnings={kind: sentence, **self.store.info.get("warnings", {})})
            with tqdm.external_write_mode() if self.bar else nullcontext():  # not amid the bar
                warnings.warn(sentence, stacklevel=3)

    def sync(self) -> None:
        """Give the sampler the policy's weights where it has older ones."""
        if self.stale:
            with self.timed("update_weights"):
                self.sampler.sync(self.policy.model)
            self.stale = False

    def limits(self, temperature: float, top_p: float = 1.0) -> Limits:
        """How long responses may be and how they are drawn."""
        d, r, cut = self.config.data, self.config.rollout, self.config.rollout.interruption
        reserve = cut.reserve if cut.enable else 0
        return Limits(d.max_response_length, r.max_turn_length, temperature, top_p, reserve, self._phrase)

    def evaluate(self) -> None:
        """Measure pass@1 on the held-out tasks and keep every sample."""
        c, section, trainer = self.config, self.config.evaluation, self.config.trainer
        self.sync()
        with self.timed("testing"):
            result = measure(
                self.policy, self.sampler, self.router, self.held_out, section,
                limits=self.limits(section.temperature, section.top_p), seed=derive("eval", c.seed, self.step),
                suites=self.stream.suites,
            )  # fmt: skip
        self.store.log_evals(self.step, result.rows)
        self.metrics |= result.metrics
        known = {k: v for k, v in self.store.info.get("evaluations", {}).items() if int(k) <= self.step}
        if result.pass_at_1:
            value, low, high, prompts = result.pass_at_1
            known[str(self.step)] = {"pass@1": value, "low": low, "high": high, "tasks": prompts}
        self.store.update(evaluations=known)
        watched = {
            m: result.metrics.get(m, math.nan) for m in (trainer.early_stop.metric, trainer.keep_best) if m
        }
        self.evaluated[self.step] = {m: value for m, value in watched.items() if not math.isnan(value)}
        if self._best(trainer.keep_best) == self.step:
            checkpoint.save(self.store.folder / BEST, self.step, self._write, keep=1)
        if self.step == 0:
            self._log()

    def end_step(self) -> None:
        """Log the step's metrics."""
        seconds = time.perf_counter() - self._began
        self.metrics["timing_s/step"] = seconds
        self.ledger.time("step", seconds)
        if self.bar is not None:
            named = {"reward": "critic/score/mean", "pass@1": "eval/pass@1"}
            shown = {k: f"{self.metrics[name]:.3f}" for k, name in named.items() if name in self.metrics}
            self.bar.set_postfix(shown, refresh=False)
            self.bar.update()
        self._log()

    def _log(self) -> None:
        self.metrics |= self.ledger.metrics()
        self.store.log(self.step, self.metrics)
        self.trackers.log(self.step, {k: v for k, v in self.metrics.items() if not math.isnan(v)})

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
        if self.device == "cuda":  # or what it was, of a run that is only looked at again
            before = self.store.info.get("summary", {}).get("gpu_memory", 0)
            summary["gpu_memory"] = max(before, torch.cuda.max_memory_reserved())
        self.store.update(status=status, summary=summary, reason=self.stopped_early)
        return Run(self.config.id, self.store.folder, status, summary)

    def close(self) -> None:
        """Release workers, the sampler's memory, trackers and the bar."""
        self.router.close()
        with suppress(RuntimeError):  # of a GPU that has failed, whose own error is on its way
            self.sampler.release()
        self.trackers.close()
        if self.bar is not None:
            self.bar.close()
