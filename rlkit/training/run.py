"""What a run holds: opened, sampled from, evaluated, logged. How it goes on is in rlkit.training.checkpoint."""

import gc
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from tqdm.auto import tqdm

from rlkit.compute import Ledger
from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.stream import content_hashes
from rlkit.environments.rollout import Limits
from rlkit.errors import RunStopped, UserError, plain_warnings
from rlkit.evaluation import measure
from rlkit.models.kernels import EAGER, compiled
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import device_of, keep_to_share, load_policy
from rlkit.models.prompts import set_template_defaults
from rlkit.models.shapes import at_hand
from rlkit.registry import plugin_versions
from rlkit.results.store import BEST, Run, RunStore
from rlkit.rewards import Router, isolation, scorer_of
from rlkit.samplers.choice import make_sampler
from rlkit.samplers.rollouts import sample_row
from rlkit.seeds import derive
from rlkit.training import checkpoint
from rlkit.training.checks import check_window, phrase_of, problems
from rlkit.training.metrics import SAMPLES_KEPT, Tracker, rollout_summary, run_summary
from rlkit.training.sampling import Feed
from rlkit.training.update import Learning
from rlkit.training.warm_start import warm_started
from rlkit.types import Rollout


class TrainingRun:
    """A run in progress. Made by `TrainingRun.open`, a context manager that releases all it holds."""

    def __init__(self, config: RunConfig, store: RunStore, progress: bool) -> None:
        self.config, self.store = config, store
        self.step = 0  # begun
        self.stale = False  # the sampler's weights are older than the policy's
        self.evaluated: dict[int, dict[str, float]] = {}  # what early_stop and keep_best look at, by step
        self.ledger, self._before = Ledger(), None
        self.metrics = defaultdict[str, float](float)  # of the step
        self.bar, self.held_out = tqdm(disable=True), held_out(config)
        self.stream = TaskStream(config, self.held_out)
        self.feed = Feed(config, self.stream)
        if config.data.filter_overlong_prompts or not at_hand(config.model.path):  # others: checks.preflight
            self.stream.check_prompts(self.held_out)
        self.device = device_of(config)
        if config.actor.use_torch_compile:
            compiled()  # says what is missing before anything is trained
        torch.backends.cuda.matmul.allow_tf32 = config.trainer.tf32
        hashes = content_hashes(self.stream, self.held_out) | plugin_versions(config.plugins)
        store.pin(**scorer_of(config.reward), **hashes)
        keep_to_share()
        torch.set_num_threads(config.trainer.num_threads or torch.get_num_threads())
        store.update(phase="preparing the model")
        started = warm_started(config, store, progress)
        weights = started and started.folder
        self.policy = load_policy(config.model, path=weights, seed=config.seed, device=self.device)
        set_template_defaults(self.policy.tokenizer, config.data.apply_chat_template_kwargs)
        self._phrase = phrase_of(config, self.policy.tokenizer)
        check_window(config, getattr(self.policy.base.config, "max_position_embeddings", None))
        if started:
            self.ledger.add("sft", started.facts["flops"])
            store.update(warm_start={"name": started.folder.name, **started.facts})
        self.learning = Learning(config, self.policy, self.ledger)
        self.sampler, why = make_sampler(self.policy, config)
        self.router = Router(config.reward)
        self.tracker = Tracker(config, store.folder)
        actor = self.learning.actor
        store.update(
            **parameter_counts(self.policy.model),
            learning_rate=actor.stepper.peak, sampler=why, compiled=actor.decoder.kernels is not EAGER,
            micro_batch_tokens=None if actor.size else actor.tokens, phase="",
        )  # fmt: skip
        self.warn(isolation(config.reward), "scorer")
        if left_out := ", ".join(f"{n:,} of {name}" for name, n in self.stream.left_out().items()):
            longer = f"prompts of more than {config.data.max_prompt_length} tokens"
            self.warn(f"data.filter_overlong_prompts left out {longer}: {left_out}.", "overlong")

    @classmethod
    @contextmanager
    def open(cls, config: RunConfig, root: Path, progress: bool) -> Iterator["TrainingRun"]:
        """Lock the run's folder, build everything, restore the newest whole checkpoint."""
        plain_warnings()
        with RunStore.open(config, root) as store:
            run, threads = None, torch.get_num_threads()
            try:
                run = cls(config, store, progress)
                checkpoint.restore(run)
                run.bar = tqdm(
                    total=config.trainer.total_training_steps, initial=run.step, desc=config.id, unit="step",
                    dynamic_ncols=True, disable=not progress or run.finished,
                )  # fmt: skip
                gc.collect()
                gc.freeze()  # every full collection would look through all of it: a tenth of a small model's steps
                yield run
            except (RunStopped, UserError):
                if run is not None:
                    with suppress(UserError):  # of a full disk, which may be what ended the run
                        run.save_last_whole_step()
                raise
            finally:
                gc.unfreeze()
                torch.set_num_threads(threads)
                if run is not None:
                    run.close()

    @property
    def finished(self) -> bool:
        """All steps are done, or `trainer.early_stop` says so."""
        return self.step >= self.config.trainer.total_training_steps or self.stopped_early is not None

    @property
    def stopped_early(self) -> str | None:
        """Why the run ends before its last step, where it does."""
        metric, patience = self.config.trainer.early_stop.metric, self.config.trainer.early_stop.patience
        best = self.best(metric)
        since = sum(step > (best or 0) and metric in found for step, found in self.evaluated.items())
        if metric is None or best is None or since < patience:
            return None
        value = self.evaluated[best][metric]
        return f"{metric} has not risen for {patience} evaluations since step {best} ({value:.3f})."

    def best(self, metric: str | None) -> int | None:
        """The first step at which a metric of the evaluations was highest."""
        values = {step: found[metric] for step, found in self.evaluated.items() if metric in found}
        return max(values, key=lambda step: (values[step], -step), default=None)

    def due(self, frequency: int) -> bool:
        """Whether something that happens every `frequency` steps, and after the last, is due now."""
        return self.finished or (frequency > 0 and self.step % frequency == 0)

    def begin_step(self) -> None:
        """Count the step; from here on metrics belong to it."""
        taken = self.learning.optimizer_steps
        self._before = self.step, self.feed.copy(), self.ledger.state_dict(), self.learning.kl.value, taken
        self.step += 1
        self.metrics.clear()
        self._began = time.perf_counter()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Seconds of a phase, for this step's metrics."""
        start = time.perf_counter()
        yield
        self.metrics[f"timing_s/{phase}"] += time.perf_counter() - start

    def report(self, rollouts: list[Rollout], learnt: bool) -> None:
        """The step's metrics of what was sampled, a few samples, and warnings."""
        n = self.config.rollout.n
        self.metrics |= rollout_summary(rollouts, n)
        if self.config.rollout.interruption.enable:
            cut = [r.forced is not None for r in rollouts]
            self.metrics["response_length/interrupted"] = sum(cut) / len(cut)
        self.metrics |= self.stream.exposure(-(-self.feed.drawn // self.config.data.train_batch_size))
        if not learnt:
            return
        if self.step == 1 or self.due(self.config.trainer.test_freq):
            shown = list(enumerate(rollouts))[:: max(1, len(rollouts) // SAMPLES_KEPT)]
            self.store.log_samples(self.step, [sample_row(self.policy, r, i // n) for i, r in shown])
        for kind, sentence in problems(self.metrics, self.config, self.step):
            self.warn(sentence, kind)

    def warn(self, message: str | None, kind: str | None = None) -> None:
        """A warning where there is a message; one of a kind is given once a run, and kept in run.json."""
        if message:
            with tqdm.external_write_mode():  # not amid the bar
                self.store.warn(kind or message, f"step {self.step}: {message}")

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
        c, section = self.config, self.config.evaluation
        self.sync()
        with self.timed("testing"):
            result = measure(
                self.policy, self.sampler, self.router, self.held_out, section,
                limits=self.limits(section.temperature, section.top_p), seed=derive("eval", c.seed, self.step),
                suites=self.stream.suites,
            )  # fmt: skip
        result.keep(self.store, self.step)
        self.metrics |= result.metrics
        watched = [m for m in (c.trainer.early_stop.metric, c.trainer.keep_best) if m in result.metrics]
        self.evaluated[self.step] = {m: v for m in watched if not math.isnan(v := result.metrics[m])}
        if self.best(c.trainer.keep_best) == self.step:
            self.save(best=True)
        if self.step == 0:
            self._log()

    def end_step(self) -> None:
        self.metrics["timing_s/step"] = time.perf_counter() - self._began
        self.ledger.seconds += self.metrics["timing_s/step"]
        named = {"reward": "critic/score/mean", "pass@1": "eval/pass@1"}
        shown = {k: f"{self.metrics[name]:.3f}" for k, name in named.items() if name in self.metrics}
        self.bar.set_postfix(shown, refresh=False)
        self.bar.update()
        self._log()

    def _log(self) -> None:
        self.metrics |= self.ledger.metrics()
        self.store.log(self.step, self.metrics)
        self.tracker.log(self.step, {k: v for k, v in self.metrics.items() if not math.isnan(v)})

    def save(self, best: bool = False) -> None:
        """Write a checkpoint of this step, where no whole one is there, or the run's `best` one."""
        kept = self.config.trainer.max_actor_ckpt_to_keep
        root, keep = (self.store.folder / BEST, 1) if best else (self.store.checkpoints, kept)
        # The best one of a step that is done again, after a crash, is of other weights where bits differ.
        if best or checkpoint.problem(checkpoint.folder_of(root, self.step)):
            checkpoint.save(root, self.step, lambda folder: checkpoint.write(self, folder), keep)

    def save_last_whole_step(self) -> None:
        """A checkpoint of the step before the one that failed, where that has not moved weights yet."""
        if self._before is None:
            return
        step, feed, ledger, kl, taken = self._before
        if step > 0 and taken == self.learning.optimizer_steps:
            self.step, self.feed, self.learning.kl.value = step, feed, kl
            self.ledger.load_state_dict(ledger)
            self.save()

    def result(self, status: str) -> Run:
        """Close the books: status and summary in run.json, and the Run."""
        summary = run_summary(self.store.info, self.step, self.ledger) | parameter_counts(self.policy.model)
        if self.device == "cuda":  # or what it was, of a run that is only looked at again
            before = self.store.info.get("summary", {}).get("gpu_memory", 0)
            summary["gpu_memory"] = max(before, torch.cuda.max_memory_reserved())
        self.store.update(status=status, summary=summary, reason=self.stopped_early)
        return Run(self.config.id, self.store.folder, status, summary)

    def close(self) -> None:
        """Release workers, the sampler's memory, the tracker and the bar."""
        self.router.close()
        with suppress(RuntimeError):  # of a GPU that has failed, whose own error is on its way
            self.sampler.release()
        self.tracker.close()
        self.bar.close()
