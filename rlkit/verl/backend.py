"""A run on verl from beginning to end: model, rows, command, watch, results, merged weights."""

import os
import sys
import warnings
from collections.abc import Hashable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from tqdm.auto import tqdm

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.exporting import export
from rlkit.data.stream import content_hashes
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.registry import plugin_versions
from rlkit.results.store import Run, RunStore
from rlkit.rewards import scorer_of
from rlkit.training.interrupt import Interrupt
from rlkit.verl import composing, launcher, limits, models, verl_config
from rlkit.verl.layout import Files
from rlkit.verl.ray_cluster import knock, use_token
from rlkit.verl.results import Results
from rlkit.verl.startup import Startup

WAITING = "waiting for another verl run of this machine to end"


def train(config: RunConfig, *, root: str | Path = "outputs", progress: bool = True) -> Run:
    """Train one run on verl, or continue it from verl's last checkpoint; a finished run returns at once.

    Ctrl-C ends it at once; what was done since the last checkpoint (`trainer.save_freq`) is done again.

    Raises:
        UserError: verl cannot do what the config asks, or the GPUs are not there; nothing has begun.
        RunStopped: verl failed or stalled, or too many answers could not be graded; one sentence.
    """
    limits.check(config)
    with Interrupt() as interrupt, RunStore.open(config, root) as store:
        try:
            return _VerlRun(config, store, progress).train(interrupt)
        except BaseException as error:
            asked = isinstance(error, KeyboardInterrupt)
            store.update(
                status="stopped" if asked else "failed",
                reason=None if asked else str(error) or type(error).__name__,
            )
            raise


def dry_run(config: RunConfig, root: str | Path = "outputs") -> tuple[list[str], Path]:
    """The command of a run, and verl's complete configuration, composed, validated and written.

    Makes no model and no rows; they are named where the run would make them. Raises UserError.
    """
    limits.check(config)
    files = Files.of(Path(root) / config.study / "runs" / config.id, models.path_of(config))
    found = verl_config.settings(config, files)
    path = files.folder / "config.yaml"
    write_text(path, composing.as_yaml(composing.compose(found)))
    return composing.command(found), path


def check_packages() -> None:
    """Refuse a TRL that verl 0.9.1 fails to import a class from, where it finds any: after minutes of starting."""
    with suppress(PackageNotFoundError):
        if (found := int(version("trl").split(".")[0])) >= 1:
            raise UserError(
                f"verl 0.9.1 does not start beside trl {found}.x, which it never needs: pip uninstall trl, or use an "
                "environment without it."
            )


def check_gpus(config: RunConfig) -> None:
    """Refuse a run on this machine that asks for more GPUs than it has, or on a cluster that is not there. What
    a cluster has is asked by verl."""
    import torch

    if verl_config.on_cluster(config):
        address = os.environ.get("RAY_ADDRESS", "auto")
        try:
            return knock(address)
        except OSError as error:
            raise UserError(
                f"No Ray cluster answers at {address} ({error}), which RAY_ADDRESS names: start one (ray start "
                "--head), or unset RAY_ADDRESS for a run on this machine."
            ) from None
    wanted, there = config.trainer.n_gpus_per_node, torch.cuda.device_count()
    if there < wanted:
        raise UserError(
            f"trainer.n_gpus_per_node is {wanted}, but this machine has {there or 'no'} GPU{'s' * (there != 1)}: "
            "lower it, use trainer.backend local, or set RAY_ADDRESS to a cluster that has them."
        )


class _VerlRun:
    """One call of `train`: an attempt, or nothing where the run is finished."""

    def __init__(self, config: RunConfig, store: RunStore, progress: bool) -> None:
        self.config, self.store, self.progress = config, store, progress
        self.total = config.trainer.total_training_steps
        self.bar: Any = None

    def train(self, interrupt: Interrupt) -> Run:
        summary = self.store.info.get("summary") or {}
        if summary.get("steps") == self.total and models.merged_step(self.store) == self.total:
            return self._result("finished", summary)
        check_packages()
        check_gpus(self.config)
        self.store.update(phase="preparing the model and the rows")
        shape, counts = models.describe(self.config)  # first: there may be no such model
        held = held_out(self.config)
        files = self._prepare()
        done = files.kept_step
        self._check_resume(files, done)
        self.store.pin(
            **scorer_of(self.config.reward),
            **plugin_versions(self.config.plugins),
            **content_hashes(TaskStream(self.config, held), held),
        )
        self.store.update(**counts)
        results = Results(self.config, self.store, files, shape, held)
        interrupt.defer()
        try:
            results.resume(done if done else -1, sorted(files.folder.glob("attempt-*/answers"))[:-1])
            with launcher.turn(lambda: interrupt.requested, self._wait) as mine:
                ended = mine and self._attempt(files, results, done, interrupt)
        finally:
            results.close()
            if self.bar is not None:
                self.bar.close()
        models.merge(self.config, self.store, files)
        return self._result("finished" if ended else "stopped", self._summary(results, counts))

    def _wait(self) -> None:
        if self.store.info.get("phase") != WAITING:
            self.store.update(phase=WAITING)
            if self.progress:
                tqdm.write(f"{self.config.id}: {WAITING}", file=sys.stderr)

    def _prepare(self) -> Files:
        """Make the model, the rows and this attempt's folder."""
        model = models.prepare(self.config)
        folder = self.store.folder / "verl"
        files = Files.of(self.store.folder, model, 1 + len(list(folder.glob("attempt-*"))))
        if not (files.folder / "test.parquet").exists():
            held = held_out(self.config)
            TaskStream(self.config, held).check_prompts(held)
            export(self.config, files.folder, progress=self.progress)
        files.answers.mkdir(parents=True)
        loop = {
            "name": "rlkit",
            "_target_": "rlkit.verl.agent_loop.RlkitAgentLoop",
            "max_turn_length": self.config.rollout.max_turn_length,
            "answers": str(files.answers),
        }
        write_text(files.loops, yaml.safe_dump([loop]))
        return files

    def _check_resume(self, files: Files, done: int) -> None:
        if done and self.config.trainer.resume_mode == "disable":
            raise UserError(
                f"trainer.resume_mode is 'disable', but {files.checkpoints} has a checkpoint of step {done}: use "
                "auto to continue it, another study or seed for a new run, or delete the folder."
            )

    def _attempt(self, files: Files, results: Results, done: int, interrupt: Interrupt) -> bool:
        """Run verl to its end; False when the user ended it."""
        found = verl_config.settings(self.config, files) | self._validation(done)
        write_text(files.folder / "config.yaml", composing.as_yaml(composing.compose(found)))
        log = files.attempt / "log.txt"
        self._show(done, log)
        if verl_config.on_cluster(self.config):
            use_token()
        startup = Startup(log)

        def look() -> Hashable:
            results.poll()
            self._follow(startup, results)
            return results.progress, startup.phase

        ended = launcher.run(
            composing.command(found), verl_config.environment(self.config, files), log, mark=str(files.folder),
            look=look, stall_timeout=self.config.trainer.stall_timeout, stop=lambda: interrupt.requested,
        )  # fmt: skip
        results.poll(ended=True)
        return ended

    def _show(self, done: int, log: Path) -> None:
        if self.progress:
            self.bar = tqdm(
                total=self.total, initial=done, desc=self.config.id, unit="step", dynamic_ncols=True
            )
            self.bar.write(f"verl's log: {log}", file=sys.stderr)

    def _follow(self, startup: Startup, results: Results) -> None:
        """Say how far verl is, and keep in run.json what its start took."""
        ended = startup.look(answered=results.answers.seen > 0)
        if ended or self.store.info.get("phase") != startup.phase:
            self.store.update(phase=startup.phase, startup=startup.seconds, startup_seconds=startup.total)
        if self.bar is None:
            return
        for name in ended:
            self.bar.write(f"{name}: {startup.seconds[name]:.0f} s", file=sys.stderr)
            self.bar.unpause()  # the start is no part of its seconds a step
        doing = f"{startup.phase}, {startup.waited:.0f} s" if startup.phase else ""
        self.bar.set_postfix_str(doing, refresh=sys.stderr.isatty())  # in a file, it would be a line a second
        if results.step > self.bar.n:
            self.bar.update(results.step - self.bar.n)

    def _validation(self, done: int) -> dict[str, Any]:
        """verl evaluates before it trains where that evaluation is not in the store yet: at step 0, and where
        an earlier attempt died between a checkpoint and its evaluation."""
        t = self.config.trainer
        due = done in (0, self.total) or (t.test_freq > 0 and done % t.test_freq == 0)
        wanted = due and str(done) not in self.store.info.get("evaluations", {})
        return {"trainer.val_before_train": wanted, "trainer.val_only": wanted and done == self.total}

    def _summary(self, results: Results, counts: dict[str, int]) -> dict[str, Any]:
        evaluations = self.store.info.get("evaluations", {})
        order = sorted(evaluations, key=int)
        return {
            "steps": results.step,
            "first": evaluations[order[0]] if order else None,
            "last": evaluations[order[-1]] if order else None,
            "flops": results.ledger.total,
            "seconds": results.ledger.seconds.get("step", 0.0),
            **counts,
        }

    def _result(self, status: str, summary: dict[str, Any]) -> Run:
        if status == "finished" and summary["steps"] < self.total:
            warnings.warn(
                f"verl ended after step {summary['steps']} of {self.total}; run it again to continue.",
                stacklevel=2,
            )
            status = "stopped"
        self.store.update(status=status, summary=summary, reason=None)
        return Run(self.config.id, self.store.folder, status, summary)
