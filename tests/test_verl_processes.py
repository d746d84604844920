"""verl as a child process: one that fails, hangs or is stopped ends in one sentence, and so does all it started."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from cases import cases
from waiting import wait_for

import rlkit
from rlkit.errors import RunStopped
from rlkit.panels.launching import sentence
from rlkit.results.run_state import run_state
from rlkit.verl import backend, processes

SLEEP = "[sys.executable, '-c', 'import time; time.sleep(600)']"
LONG = [sys.executable, "-c", "import time; time.sleep(600)"]
DAEMON = f"import subprocess, sys; subprocess.Popen({SLEEP}, start_new_session=True)"
HANG = f"{DAEMON}; print('step 1', flush=True); import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(processes, "TICK", 0.05)


def start(code, tmp_path, **options):
    log = tmp_path / "log.txt"
    options = {"mark": str(tmp_path), "look": lambda: 0, "stall_timeout": 60.0, **options}
    return processes.run([sys.executable, "-c", code], {"NOTE": "here"}, log, **options), log


def left(mark) -> list[psutil.Process]:
    everyone = psutil.process_iter(["environ"])
    return [process for process in everyone if (process.info["environ"] or {}).get(processes.MARK) == mark]


def test_a_child_that_succeeds(tmp_path):
    done, log = start("import os; print(os.environ['NOTE'])", tmp_path)
    assert done and log.read_text() == "here\n"


def test_a_child_that_makes_no_progress_is_ended_with_all_it_started(tmp_path):
    with pytest.raises(RunStopped, match=r"no progress for \d+ s and was ended.*Log: .*log\.txt") as caught:
        start(HANG, tmp_path, stall_timeout=1.0)
    assert "continue from the last checkpoint" in str(caught.value)
    assert left(str(tmp_path)) == []


def test_progress_keeps_a_child_alive(tmp_path, clock):
    looks = itertools.count()

    def look() -> int:
        """Another value every second time, each 0.4 s after the last."""
        clock[0] += 0.4
        return next(looks) // 2

    assert start("import time; time.sleep(1)", tmp_path, stall_timeout=1.0, look=look)[0]


def test_a_failure_of_vllm_after_which_verl_waits_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LOST_PATIENCE", 0.2)
    failure = "print('ERROR Invocation of collective_rpc method failed', flush=True)"
    with pytest.raises(RunStopped, match="made no progress"):
        start(f"{failure}; import time; time.sleep(600)", tmp_path, stall_timeout=600.0)


@pytest.mark.parametrize(("output", "sentence"), cases("failures_of_verl"))
def test_a_failure_is_one_sentence_that_names_the_reason_and_the_log(tmp_path, output, sentence):
    said = rf"verl ended with status 3: .*{sentence}.*Log: .*log\.txt"
    with pytest.raises(RunStopped, match=said) as caught:
        start(f"print({output!r}); raise SystemExit(3)", tmp_path)
    assert "\n" not in str(caught.value)


def test_the_user_stops_it(tmp_path):
    log = tmp_path / "log.txt"
    done, _ = start(HANG, tmp_path, stop=lambda: log.exists() and "step 1" in log.read_text())
    assert not done and left(str(tmp_path)) == []


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EINVAL])
def test_a_kernel_that_opens_no_pidfd_of_an_ending_process_fails_no_run(tmp_path, monkeypatch, number):
    def refuse(pid, flags=0):
        if pid != os.getpid():
            raise OSError(number, os.strerror(number))
        return os.open("/proc/self/stat", os.O_RDONLY)

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert start(f"{DAEMON}; print('done')", tmp_path)[0]
    assert left(str(tmp_path)) == []


def test_an_error_while_looking_ends_it(tmp_path):
    def look():
        raise RunStopped("too many answers could not be graded")

    with pytest.raises(RunStopped, match="too many answers"):
        start(HANG, tmp_path, look=look)
    assert left(str(tmp_path)) == []


def test_what_an_earlier_attempt_left_is_ended_and_other_runs_are_not(tmp_path):
    stale = subprocess.Popen(LONG, env={**os.environ, processes.MARK: str(tmp_path)})
    other = subprocess.Popen(LONG, env={**os.environ, processes.MARK: f"{tmp_path}-other"})
    try:
        assert start("print(1)", tmp_path)[0]
        stale.wait(timeout=10)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's death")
def test_a_launcher_that_is_killed_takes_its_child_with_it(tmp_path):
    code = (
        "from pathlib import Path; import sys; from rlkit.verl import processes; "
        f"processes.run({SLEEP}, {{}}, Path({str(tmp_path / 'log')!r}), "
        f"mark={str(tmp_path)!r}, look=lambda: 0, stall_timeout=600.0)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: left(str(tmp_path)))
    parent.kill()
    assert parent.wait() == -signal.SIGKILL
    wait_for(lambda: not left(str(tmp_path)))
    assert not left(str(tmp_path))


def test_two_runs_of_a_machine_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: str(tmp_path))
    waits = []
    with (
        processes.machine_lock(lambda: False, lambda: None) as first,
        processes.machine_lock(lambda: len(waits) == 3, lambda: waits.append(1)) as second,
    ):
        assert first and not second and len(waits) == 3
    with processes.machine_lock(lambda: False, lambda: waits.append(1)) as third:
        assert third and len(waits) == 3


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    return now


def test_a_user_sees_that_verl_starts_and_run_json_keeps_how_long_it_took(tmp_path, monkeypatch, capsys):
    def verl(command, environment, log, *, look, **_):
        look()
        assert sentence(run_state(log.parents[2])) == "running · starting verl"
        (log.parent / "answers" / "a.jsonl").write_text('{"step": 1, "split": "train"}\n')
        look()
        assert sentence(run_state(log.parents[2])) == "running"
        return False

    monkeypatch.setattr(backend, "check_machine", lambda config: None)
    monkeypatch.setattr(backend.processes, "run", verl)
    kind = {"model.path": "ladder-10k", "model.warm_start.kind": "none", "study": "start"}
    run = rlkit.train(rlkit.load("params/verl_ladder.yaml", kind), root=tmp_path)
    assert f"verl's log: {run.folder}/verl/attempt-1/log.txt" in capsys.readouterr().err
    info = json.loads((run.folder / "run.json").read_text())
    assert info["startup_seconds"] >= 0 and info["phase"] == "" and info["status"] == "stopped"
