"""The processes of a verl run: their files, their environment, the Ray cluster that they are on; and verl as a child
process: started, watched, ended, so that nothing of it stays behind.

verl 0.9.1 was seen to wait for ever after one of its workers had failed, with a log that goes on growing. So
what is watched is progress (answers and metrics), not life. Its processes are known as descendants of the
child and by a mark in their environment (Ray's daemons outlive their parent, and its Python processes overwrite
their environment), and are ended by their ids: other Ray clusters of the machine are left alone.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from rlkit.config import RunConfig
from rlkit.errors import RunStopped
from rlkit.registry import PLUGINS
from rlkit.results.run_state import is_alive
from rlkit.sandbox.jail import PR_SET_PDEATHSIG, prctl

LOCAL_CPUS = 32
"""What Ray is told on one machine: its CPUs are a count of places, and verl waits for ever where they are few."""
MARK = "RLKIT_VERL_RUN"
TICK = 1.0  # seconds between looks
LOST_PATIENCE = 120.0  # seconds without progress, where the log says that a worker of vLLM has failed
LOST = r"Invocation of \w+ method failed|EngineDeadError|Engine core proc\S* .*died"
TERMINATION = 10.0  # seconds that processes get to end by themselves
REASONS = {
    r"Total available GPUs .* less than total desired":
        "there are fewer free GPUs than trainer.nnodes × trainer.n_gpus_per_node",
    r"CUDA out of memory|torch\.OutOfMemoryError|Free memory on device":
        "a worker ran out of GPU memory: lower actor.micro_batch_tokens or rollout.gpu_memory_utilization, or use more "
        "GPUs",
    r"No available memory for the cache blocks":
        "vLLM's share of the GPU does not hold the weights and a cache: raise rollout.gpu_memory_utilization, lower "
        "rollout.max_num_seqs, or use more GPUs (rollout.tensor_model_parallel_size)",
    r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory":
        "a worker ran out of the machine's memory",
    r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device": "no GPU was found",
    r"The current node timed out during startup":  # ray-project/ray issue 65983
        "Ray's agents did not start in the 15 s that Ray gives them: run it again",
    r"ConnectionError: .*(ray|GCS)|Failed to (start|connect to).*(raylet|GCS)|RaySystemError|node has died":
        "Ray could not be started, or was lost",
    r"No module named '?(transfer_queue|vllm)": "verl's trainer is not installed whole: pip install 'rlkit[gpu]'",
    r"no materializable trajectories": "not one answer of a step could be graded",
    r"ActorDiedError|ActorUnavailableError|EngineDeadError|Engine core .*(died|failed)": "a worker died",
}  # fmt: skip
"""What a log says, and what it means; the first that is found counts."""


@dataclass(frozen=True)
class Files:
    """What a verl run reads and writes, all in `folder` (`<run>/verl`, absolute, as Ray's workers need it) but the
    model (a Hugging Face folder or hub id); `attempt` is the folder of this attempt's log, metrics and answers."""

    folder: Path
    model: str
    attempt: Path

    @classmethod
    def of(cls, run: Path, model: str, attempt: int = 1) -> "Files":
        """The files of one attempt of the run in folder `run`."""
        folder = run.absolute() / "verl"
        return cls(folder, model, folder / f"attempt-{attempt}")

    @property
    def answers(self) -> Path:
        """Folder of the answers log."""
        return self.attempt / "answers"

    @property
    def earlier(self) -> list[Path]:
        """Folders of the answers logs of the attempts before this one, newest first."""
        number = int(self.attempt.name.rpartition("-")[2])
        return [self.folder / f"attempt-{k}" / "answers" for k in range(number - 1, 0, -1)]

    @property
    def checkpoints(self) -> Path:
        """verl's own, sharded ones."""
        return self.folder / "checkpoints"

    @property
    def loops(self) -> Path:
        """The agent loop's options."""
        return self.folder / "agent_loops.yaml"


def on_cluster(config: RunConfig) -> bool:
    """Whether Ray is running already. Otherwise verl starts one of its own, whatever else runs on the machine."""
    return config.trainer.nnodes > 1 or bool(os.environ.get("RAY_ADDRESS"))


def environment(config: RunConfig, files: Files) -> dict[str, str]:
    """Environment variables of verl's processes, on all machines."""
    source, mine = str(Path(__file__).resolve().parents[2]), os.environ
    found = {
        "VERL_FILE_LOGGER_PATH": str(files.attempt / "metrics.jsonl"),
        "PYTHONPATH": os.pathsep.join(filter(None, [source, mine.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",  # the log is followed
        "RAY_USAGE_STATS_ENABLED": mine.get("RAY_USAGE_STATS_ENABLED", "0"),
        "VLLM_NO_USAGE_STATS": mine.get("VLLM_NO_USAGE_STATS", "1"),
    }
    if Path(files.model).is_dir():  # a hub that cannot be reached is not waited for
        found["HF_HUB_OFFLINE"] = "1"
    if config.plugins:
        found[PLUGINS] = os.pathsep.join(str(Path(file).expanduser().resolve()) for file in config.plugins)
    needed = config.plugins or config.algorithm.adv_estimator == "gae"
    modules = mine.get("VERL_USE_EXTERNAL_MODULES"), "rlkit.verl.worker_start" if needed else None
    if any(modules):
        found["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, modules))
    if config.trainer.num_threads:
        found["OMP_NUM_THREADS"] = str(config.trainer.num_threads)
    return found


@contextmanager
def machine_lock(stop: Callable[[], bool], waiting: Callable[[], None]) -> Iterator[bool]:
    """Wait until this user has no other verl run on this machine; False when `stop` ended the waiting.

    verl 0.9.1 names the socket of its weight sync after Ray's job, which has the same number in every cluster that
    a run starts for itself, and its queue of answers has one name a cluster: two runs would mix.
    """
    lock = FileLock(Path(tempfile.gettempdir()) / f"rlkit-verl-{os.getuid()}.lock")
    while not lock.is_locked and not stop():
        try:
            lock.acquire(timeout=TICK)
        except Timeout:
            waiting()
    try:
        yield lock.is_locked
    finally:
        lock.release()


def run(
    command: list[str], environment: Mapping[str, str], log: Path, *, mark: str, look: Callable[[], Hashable],
    stall_timeout: float, stop: Callable[[], bool] = lambda: False,
) -> bool:  # fmt: skip
    """Run a command to its end, with its output in `log`: True when it succeeded, False when `stop` ended it.

    Args:
        mark: names the run; processes that carry it from an earlier attempt are ended first.
        look: called every second; its value changes as long as there is progress. It may raise.

    Raises RunStopped: it failed, or made no progress for `stall_timeout` seconds: one sentence with the log's path.
    """
    Family(mark).end()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **environment, MARK: mark},
            start_new_session=True,  # Ctrl-C reaches this process alone
            # A launcher that is killed takes verl with it, and Ray's daemons follow their driver.
            preexec_fn=partial(prctl, PR_SET_PDEATHSIG, signal.SIGTERM),
        )  # fmt: skip
    family = Family(mark)
    try:
        seen, since = look(), time.monotonic()
        while child.poll() is None:
            if stop():
                return False
            family.look(child.pid)
            time.sleep(TICK)
            now, waited = look(), time.monotonic() - since
            if now != seen:
                seen, since = now, time.monotonic()
                continue
            lost = waited > LOST_PATIENCE and re.search(LOST, log.read_text(errors="replace"))
            if lost or waited > stall_timeout:
                raise RunStopped(
                    f"verl made no progress for {waited:.0f} s and was ended{_because(log)}. Run it again to "
                    f"continue from the last checkpoint; trainer.stall_timeout is {stall_timeout:g}. Log: {log}"
                )
    finally:
        family.end()
        child.wait()
    if child.returncode:
        raise RunStopped(f"verl ended with status {child.returncode}{_because(log)}. Log: {log}")
    return True


def _because(log: Path) -> str:
    """What the log says about a failure, as the end of a sentence."""
    text = log.read_text(errors="replace")
    errors = re.findall(r"^(?:\S*\s)?((?:\w+\.)*\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    known = [reason for pattern, reason in REASONS.items() if re.search(pattern, text)]
    reason = known[0] if known else errors[-1].strip().rstrip(".") if errors else ""
    return f": {reason}" if reason else ""


class Family:
    """The processes of a run: those whose RLKIT_VERL_RUN is its mark, and every descendant that was seen of them."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._known: set[psutil.Process] = set()

    def look(self, pid: int) -> None:
        """Remember the descendants of a process, which lose their parent when it dies."""
        with suppress(psutil.Error):
            self._known |= set(psutil.Process(pid).children(recursive=True))

    def end(self) -> None:
        """End them all, and what they may have started while they were being ended."""
        for _ in range(3):
            for process in self._marked():
                self.look(process.pid)
                self._known.add(process)
            if not self._known:
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                for process in filter(is_alive, self._known):
                    with suppress(psutil.Error):
                        process.send_signal(number)
                deadline = time.monotonic() + TERMINATION
                while any(map(is_alive, self._known)) and time.monotonic() < deadline:
                    time.sleep(0.05)
            self._known = set()

    def _marked(self) -> list[psutil.Process]:
        others = (p for p in psutil.process_iter(["environ"]) if p.pid != os.getpid())
        return [p for p in others if (p.info["environ"] or {}).get(MARK) == self.mark]
