"""A run on verl from beginning to end: model, rows, configuration, watch, results, merged weights."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml
from tqdm.auto import tqdm

from rlkit.config import RunConfig
from rlkit.data import TaskStream, export, held_out
from rlkit.data.stream import content_hashes
from rlkit.errors import RunStopped, UserError
from rlkit.files import write_text
from rlkit.registry import plugin_versions
from rlkit.results.run_state import checkpoint_steps, verl_step
from rlkit.results.store import Run, RunStore
from rlkit.rewards import scorer_of
from rlkit.training import checkpoint
from rlkit.training.interrupt import Interrupt
from rlkit.training.metrics import run_summary
from rlkit.types import Task
from rlkit.verl import processes, weights
from rlkit.verl.checks import check
from rlkit.verl.config import compose, escaped
from rlkit.verl.processes import Files, environment, on_cluster
from rlkit.verl.results import Results

STARTING = "starting verl"  # some ten processes, one after another: minutes
WAITING = "waiting for another verl run of this machine to end"


def train(config: RunConfig, *, root: str | Path = "outputs", progress: bool = True) -> Run:
    """Train one run on verl, or continue it from verl's last checkpoint; a finished run returns at once. Ctrl-C ends it
    at once; what was done since the last checkpoint (`trainer.save_freq`) is done again.

    Raises:
        UserError: verl cannot do what the config asks, or the GPUs are not there; nothing has begun.
        RunStopped: verl failed or stalled, or too many answers could not be graded; one sentence.
    """
    check(config)
    with Interrupt() as interrupt, RunStore.open(config, root, stopped="failed") as store:
        return _VerlRun(config, store, progress).train(interrupt)


def dry_run(config: RunConfig, root: str | Path = "outputs") -> str:
    """The command of a run, after writing the configuration that verl reads; no model, no rows. Raises UserError."""
    files = Files.of(Path(root) / config.study / "runs" / config.id, weights.path_of(config))
    return shlex.join(_command(config, files))


def check_machine(config: RunConfig) -> None:
    """Refuse what would fail after minutes of starting: a TRL that verl 0.9.1 cannot import, where it finds any;
    fewer GPUs on this machine than are asked for; no cluster at RAY_ADDRESS. What a cluster has is asked by verl."""
    with suppress(PackageNotFoundError):
        if (found := int(version("trl").split(".")[0])) >= 1:
            fix = "pip uninstall trl, or use an environment without it"
            raise UserError(f"verl 0.9.1 does not start beside trl {found}.x, which it never needs: {fix}.")
    if on_cluster(config):
        address = os.environ.get("RAY_ADDRESS", "auto")
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        try:
            if colon and port.isdigit():  # Ray itself would try for minutes
                socket.create_connection((host, int(port)), timeout=5).close()
            return
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


def _command(config: RunConfig, files: Files, changes: Mapping[str, Any] | None = None) -> list[str]:
    """Write verl's configuration; the command that trains by it."""
    hydra = {"run": {"dir": escaped(str(files.attempt / "hydra"))}, "output_subdir": None}
    content = {"hydra": hydra, **compose(config, files, changes)}
    write_text(files.folder / "config.yaml", yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    where = ["--config-path", str(files.folder), "--config-name", "config"]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *where]


class _VerlRun:
    """One call of `train`: an attempt, or nothing where the run is finished."""

    def __init__(self, config: RunConfig, store: RunStore, progress: bool) -> None:
        self.config, self.store, self.progress = config, store, progress
        self.total = config.trainer.total_training_steps

    def train(self, interrupt: Interrupt) -> Run:
        c, summary = self.config, self.store.info.get("summary") or {}
        if summary.get("steps") == self.total and self.total in checkpoint_steps(self.store.checkpoints):
            return self._result("finished", summary)
        check_machine(c)
        self.store.update(phase="preparing the model and the rows")
        shape, counts = weights.describe(c)  # first: there may be no such model
        held = held_out(c)
        files = self._prepare(held)
        done = verl_step(files.checkpoints)
        hashes = content_hashes(TaskStream(c, held), held)
        self.store.pin(**scorer_of(c.reward), **plugin_versions(c.plugins), **hashes)
        self.store.update(**counts)
        results = Results(c, self.store, files, shape, held)
        interrupt.defer()
        with closing(results.tracker), processes.machine_lock(lambda: interrupt.requested, self._wait) as mine:
            results.resume(done or -1)
            ended = mine and self._attempt(files, results, done, interrupt)
        self._merge(files)
        if ended and results.step < self.total:
            what = f"verl ended after step {results.step} of {self.total}; run it again to continue."
            warnings.warn(what, stacklevel=2)
        status = "finished" if ended and results.step == self.total else "stopped"
        return self._result(status, run_summary(self.store.info, results.step, results.ledger) | counts)

    def _result(self, status: str, summary: dict[str, Any]) -> Run:
        self.store.update(status=status, summary=summary, reason=None)
        return Run(self.config.id, self.store.folder, status, summary)

    def _wait(self) -> None:
        if self.store.info.get("phase") != WAITING:
            self.store.update(phase=WAITING)
            if self.progress:
                tqdm.write(f"{self.config.id}: {WAITING}", file=sys.stderr)

    def _prepare(self, held: Sequence[Task]) -> Files:
        """Make the model, the rows and this attempt's folder."""
        model = weights.prepare(self.config)
        before = [int(path.name.rpartition("-")[2]) for path in self.store.folder.glob("verl/attempt-*")]
        files = Files.of(self.store.folder, model, 1 + max(before, default=0))
        if not (files.folder / "test.parquet").exists():
            TaskStream(self.config, held).check_prompts(held)
            export(self.config, files.folder, progress=self.progress)
        files.answers.mkdir(parents=True)
        loop = {
            "name": "rlkit", "_target_": "rlkit.verl.agent_loop.RlkitAgentLoop", "answers": str(files.answers),
            "max_turn_length": self.config.rollout.max_turn_length,
        }  # fmt: skip
        write_text(files.loops, yaml.safe_dump([loop]))
        return files

    def _attempt(self, files: Files, results: Results, done: int, interrupt: Interrupt) -> bool:
        """Run verl to its end; False when the user ended it. verl evaluates before it trains where that evaluation is
        not in the store yet: at step 0, and where an earlier attempt died between a checkpoint and its evaluation."""
        every, log = self.config.trainer.test_freq, files.attempt / "log.txt"
        due = done in (0, self.total) or (every > 0 and done % every == 0)
        wanted = due and str(done) not in self.store.info.get("evaluations", {})
        validation = {"trainer.val_before_train": wanted, "trainer.val_only": wanted and done == self.total}
        command = _command(self.config, files, validation)
        if self.progress:
            tqdm.write(f"verl's log: {log}", file=sys.stderr)
        shown: Any = {"desc": self.config.id, "unit": "step", "dynamic_ncols": True, "disable": not self.progress}
        began = time.monotonic()
        with tqdm(total=self.total, initial=done, **shown) as bar:

            def look() -> Hashable:
                results.poll()
                self._follow(results, bar, time.monotonic() - began)
                return results.progress

            ended = processes.run(
                command, environment(self.config, files), log, mark=str(files.folder), look=look,
                stall_timeout=self.config.trainer.stall_timeout, stop=lambda: interrupt.requested,
            )  # fmt: skip
        results.poll(ended=True)
        return ended

    def _follow(self, results: Results, bar: tqdm, seconds: float) -> None:
        """Say how far verl is, and keep in run.json how long its start took, up to its first answer."""
        starting = not results.answers.seen
        if self.store.info.get("phase") != (phase := STARTING if starting else ""):
            self.store.update(phase=phase, startup_seconds=None if starting else seconds)
            bar.unpause()  # the start is no part of its seconds a step
        said = f"{phase}, {seconds:.0f} s" if starting else ""
        bar.set_postfix_str(said, refresh=sys.stderr.isatty())  # else a line a second
        bar.update(max(0, results.step - bar.n))

    def _merge(self, files: Files) -> None:
        """Merge verl's newest checkpoint into the run store's, in bfloat16, or its adapter. Raises RunStopped."""
        step, log = verl_step(files.checkpoints), files.attempt / "merge.txt"
        if not step or step in checkpoint_steps(self.store.checkpoints):
            return

        def write(folder: Path) -> None:
            target = folder / "model"
            shards = files.checkpoints / f"global_step_{step}" / "actor"
            command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
            command += ["--local_dir", str(shards), "--target_dir", str(target)]
            with log.open("wb") as output:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            if done.returncode:
                raise RunStopped(f"verl's merger failed on the checkpoint of step {step}. Log: {log}")
            if self.config.model.lora_rank:  # the run store keeps an adapter, not a copy of the base model
                adapter = target.with_name("adapter")
                (target / "lora_adapter").rename(adapter)
                shutil.rmtree(target)
                adapter.rename(target)

        checkpoint.save(self.store.checkpoints, step, write, self.config.trainer.max_actor_ckpt_to_keep)
