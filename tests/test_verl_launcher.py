"""The launcher: a child that fails, hangs or is stopped ends in one sentence, and so does all it started."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from rlkit.errors import RunStopped
from rlkit.verl import launcher

SLEEP = "[sys.executable, '-c', 'import time; time.sleep(600)']"
DAEMON = f"import subprocess, sys; subprocess.Popen({SLEEP}, start_new_session=True)"
HANG = f"{DAEMON}; print('step 1', flush=True); import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(launcher, "TICK", 0.05)


def start(code, tmp_path, **options):
    log = tmp_path / "log.txt"
    options = {"mark": str(tmp_path), "look": lambda: 0, "stall_timeout": 60.0, **options}
    return launcher.run([sys.executable, "-c", code], {"NOTE": "here"}, log, **options), log


def left(mark) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(launcher.MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_child_that_succeeds(tmp_path):
    done, log = start("import os; print(os.environ['NOTE'])", tmp_path)
    assert done and log.read_text() == "here\n"


def test_a_child_that_makes_no_progress_is_ended_with_all_it_started(tmp_path):
    with pytest.raises(RunStopped, match=r"no progress for \d+ s and was ended.*Log: .*log\.txt") as caught:
        start(HANG, tmp_path, stall_timeout=2.0)
    assert "continue from the last checkpoint" in str(caught.value)
    assert left(str(tmp_path)) == []


def test_progress_keeps_a_child_alive(tmp_path):
    began = time.monotonic()
    done, _ = start(
        "import time; time.sleep(3)", tmp_path, stall_timeout=1.0, look=lambda: int(time.monotonic() * 4)
    )
    assert done and time.monotonic() - began > 2.5


def test_a_failure_of_vllm_after_which_verl_waits_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "LOST_PATIENCE", 1.0)
    code = (
        "print('ERROR Invocation of collective_rpc method failed', flush=True); import time; time.sleep(600)"
    )
    with pytest.raises(RunStopped, match="made no progress"):
        start(code, tmp_path, stall_timeout=600.0)


@pytest.mark.parametrize(
    "output, sentence",
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "a worker ran out of GPU memory",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try",
            r"raise rollout\.gpu_memory_utilization",
        ),
        ("ValueError: Total available GPUs 1 is less than total desired GPUs 4", "fewer free GPUs"),
        ("ModuleNotFoundError: No module named 'transfer_queue'", r"pip install 'rlkit\[gpu\]'"),
        ("ConnectionError: ray could not connect to GCS", "Ray could not be started"),
        ("KeyError: 'colour'", "KeyError: 'colour'"),
    ],
)
def test_a_failure_is_one_sentence_that_names_the_reason_and_the_log(tmp_path, output, sentence):
    code = f"print({output!r}); raise SystemExit(3)"
    with pytest.raises(
        RunStopped, match=rf"verl ended with status 3: .*{sentence}.*Log: .*log\.txt"
    ) as caught:
        start(code, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_user_stops_it(tmp_path):
    began = time.monotonic()
    done, _ = start(HANG, tmp_path, stop=lambda: time.monotonic() - began > 1)
    assert not done and left(str(tmp_path)) == []


def test_an_error_while_looking_ends_it(tmp_path):
    def look():
        raise RunStopped("too many answers could not be graded")

    with pytest.raises(RunStopped, match="too many answers"):
        start(HANG, tmp_path, look=look)
    assert left(str(tmp_path)) == []


def test_what_an_earlier_attempt_left_is_ended_and_other_runs_are_not(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    stale = subprocess.Popen(sleep, env={**os.environ, launcher.MARK: str(tmp_path)})
    other = subprocess.Popen(sleep, env={**os.environ, launcher.MARK: f"{tmp_path}-other"})
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
        "from pathlib import Path; import sys; from rlkit.verl import launcher; "
        f"launcher.run([sys.executable, '-c', 'import time; time.sleep(600)'], {{}}, Path({str(tmp_path / 'log')!r}), "
        f"mark={str(tmp_path)!r}, look=lambda: 0, stall_timeout=600.0)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not left(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left(str(tmp_path))
    parent.kill()
    parent.wait()
    while left(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left(str(tmp_path)) == []


SLOW = (
    "from pathlib import Path; import sys; seen = Path('{0}'); before = seen.read_text() if seen.exists() else '';"
    "seen.write_text(before + 'x'); print('started', len(before) + 1);"
    "sys.exit('Exception: The current node timed out during startup.' if len(before) < {1} else 0)"
)


def test_a_ray_that_was_too_slow_is_started_again(tmp_path):
    done, log = start(SLOW.format(tmp_path / "seen", 2), tmp_path)
    assert done and log.read_text() == "started 3\n"
    assert (tmp_path / "log-1.txt").read_text().startswith("started 1\n")


def test_a_ray_that_is_always_too_slow_is_one_sentence(tmp_path):
    with pytest.raises(RunStopped, match="15 s that Ray gives them, 3 times"):
        start(SLOW.format(tmp_path / "seen", 9), tmp_path)
    assert (tmp_path / "seen").read_text() == "xxx"


def test_two_runs_of_a_machine_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher.tempfile, "gettempdir", lambda: str(tmp_path))
    waits = []
    with (
        launcher.turn(lambda: False, lambda: None) as first,
        launcher.turn(lambda: len(waits) == 3, lambda: waits.append(1)) as second,
    ):
        assert first and not second and len(waits) == 3
    with launcher.turn(lambda: False, lambda: waits.append(1)) as third:
        assert third and len(waits) == 3
