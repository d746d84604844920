"""Runs in processes of their own: they outlive kernels, are found again, stop in order and say why they failed."""

import asyncio
import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from waiting import wait_for

import rlkit
from rlkit.errors import UserError
from rlkit.files import read_json
from rlkit.panels.launching import RunFailed, RunView, attach, launch
from rlkit.results.run_state import checkpoint_steps, process_of, run_state
from rlkit.results.store import RunStore, announce, read_jsonl
from rlkit.studies.notebook import execute

ROOT = Path(__file__).parent.parent
SMALL = {
    "study": "tiny", "model.path": "ladder-10k", "model.warm_start": {"kind": "none"}, "rollout.n": 2,
    "data.train_batch_size": 8, "evaluation.size": 16, "evaluation.n": 1, "trainer.total_training_steps": 100,
    "trainer.test_freq": 50, "trainer.save_freq": 5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def config(tmp_path):
    """A run of a few seconds; whatever still trains below the root is ended after the test."""
    yield rlkit.load("params/train.yaml", SMALL)
    for info in tmp_path.glob("tiny/runs/*/run.json"):
        process = process_of(read_json(info))
        if process is not None and process.pid != os.getpid():
            process.kill()
            process.wait()


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read_jsonl(folder / "metrics.jsonl")]


def test_a_run_outlives_its_killed_notebook_which_finds_it_again(tmp_path, config):
    folder = tmp_path / "tiny" / "runs" / config.id
    values = {"config": "params/train.yaml", "overrides": SMALL, "root": str(tmp_path)}
    command = [sys.executable, "-m", "papermill", "notebooks/train.ipynb", str(tmp_path / "killed.ipynb")]
    command += ["-y", str(values)]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(steps(folder)) > 2)
    for process in [*psutil.Process(job.pid).children(), psutil.Process(job.pid)]:  # the kernel, papermill
        process.kill()
    job.wait()
    assert attach(folder).status == "running"

    executed = execute("notebooks/train.ipynb", tmp_path / "again.ipynb", values)
    assert steps(folder) == list(range(101))
    assert attach(folder).resume().status == "finished"  # there is nothing to go on with
    assert len(read_json(folder / "run.json")["attempts"]) == 1
    # Read without widgets, every output is words, a table or a picture beside whatever else it is.
    (cell,) = [c for c in nbformat.read(executed, as_version=4).cells if "await rlkit.launch" in c.source]
    data = [output.data for output in cell.outputs if "data" in output]
    assert any("image/png" in bundle for bundle in data)
    assert any("samples of step 100" in bundle.get("text/html", "") for bundle in data)
    assert f"{config.id}: finished · step 100 of 100" in data[0]["text/plain"]
    assert not any("application/vnd.jupyter.widget-view+json" in bundle for bundle in data)


def test_a_killed_run_goes_on_from_its_checkpoint_and_an_interrupt_stops_at_one(tmp_path, config):
    endless = SMALL | {"trainer.total_training_steps": 10**5, "trainer.test_freq": 0}
    run = launch("params/train.yaml", endless, root=tmp_path)
    wait_for(lambda: checkpoint_steps(run.folder / "checkpoints") != [])
    owner = process_of(read_json(run.folder / "run.json"))
    assert owner is not None
    owner.kill()
    with pytest.raises(RunFailed, match=r"process is gone .*resume\(\) continues from the last checkpoint"):
        run.wait()
    assert run.status == "lost"

    before = steps(run.folder)[-1]

    def interrupt() -> None:
        wait_for(lambda: steps(run.folder)[-1] > before + 5)
        os.kill(os.getpid(), signal.SIGINT)

    assert run.resume().state.active

    async def until_end():
        return await run

    threading.Thread(target=interrupt).start()
    assert asyncio.run(until_end()).status == "stopped"
    reached = run.state.step
    assert reached and checkpoint_steps(run.folder / "checkpoints")[-1] == reached
    assert steps(run.folder) == list(range(reached + 1))

    again = launch("params/train.yaml", endless, root=tmp_path)
    assert again.folder == run.folder and again.state.active and again.stop().status == "stopped"
    assert len(read_json(run.folder / "run.json")["attempts"]) == 2


def test_a_run_that_is_stopped_before_it_begins_is_stopped_and_can_begin_again(tmp_path, config):
    run = launch(config, root=tmp_path)
    assert run.status == "starting"
    assert run.stop(wait=False).status == "stopped"
    assert run.resume().status == "starting"
    assert run.stop().status == "stopped"


def test_a_run_that_is_stopped_while_it_prepares_was_stopped_on_request(tmp_path, config, monkeypatch):
    def refuse(pid, flags=0):
        """As newer kernels do for a process that is just ending."""
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    if hasattr(os, "pidfd_open"):
        monkeypatch.setattr("psutil._psposix.can_use_pidfd_open", lambda: True)
        monkeypatch.setattr(os, "pidfd_open", refuse)
    run = launch(config, {"evaluation.size": 800, "evaluation.n": 20}, tmp_path)
    wait_for(lambda: run.status == "running")
    assert run.stop().wait().status == "stopped"
    assert run.state.reason == "" and steps(run.folder) == []


def test_who_waits_for_a_run_that_fails_gets_its_sentence(tmp_path):
    run = launch("params/train.yaml", {**SMALL, "algorithm.adv_estimator": "gdpo"}, tmp_path)
    with pytest.raises(UserError, match="gdpo"):
        run.wait()
    state = run_state(run.folder)
    assert state.status == "failed" and "gdpo" in state.reason


def test_one_run_of_a_study_file_has_to_choose_its_cell(tmp_path):
    study = tmp_path / "sizes.yaml"
    study.write_text("run: {seed: 0}\ngrid: {model.path: [ladder-10k, ladder-30k]}\n")
    told = "choose its cell.*in Python by the overrides {'model.path': 'ladder-10k'}"
    with pytest.raises(UserError, match=told):
        rlkit.launch(study, root=tmp_path)
    assert not (tmp_path / "sizes").exists()  # nothing has begun


@pytest.fixture
def elsewhere(tmp_path, config):
    """The store of a run that another machine trains."""
    with RunStore.open(config, tmp_path) as store:
        store.log(0, {"eval/pass@1": 0.25})
        store.update(process={**store.info["process"], "host": "elsewhere"})
    return store


def test_a_run_is_found_by_folder_or_id_and_one_elsewhere_is_not_stopped_from_here(tmp_path, config, elsewhere):
    store = elsewhere
    assert attach(store.folder).folder == attach(config.id, tmp_path).folder == store.folder
    assert "running" in repr(attach(store.folder))
    with pytest.raises(UserError, match="no one run 'other'"):
        attach("other", tmp_path)
    with pytest.raises(UserError, match="on the machine elsewhere"):
        attach(store.folder).stop()
    old = time.time() - 2000  # longer than trainer.stall_timeout without a word
    for name in ("metrics.jsonl", "run.json"):
        os.utime(store.folder / name, (old, old))
    assert attach(store.folder).status == "lost"
    (store.folder / "metrics.jsonl").write_text('{"step": 1, "time": "a"}\n{"step": 2, "time": "b"}\n')
    with pytest.raises(RunFailed, match="a file in .* is damaged"):
        attach(store.folder).wait()


def test_what_a_button_of_a_watched_run_cannot_do_is_said_beside_it_and_stays(elsewhere):
    store, view = elsewhere, RunView(attach(elsewhere.folder))
    view.stop.click()
    view.refresh()
    assert "on the machine elsewhere: stop it there" in view.message.value
    assert "running" in view.text.value and not view.stop.disabled
    store.update(process=None, status="stopped")
    view.refresh()
    assert view.message.value == "" and not view.resume.disabled
    (store.folder / "config.yaml").write_text("study: [1]")
    view.resume.click()
    view.refresh()
    assert "study" in view.message.value and "stopped" in view.text.value


def test_the_state_of_a_run_tells_pace_and_progress(tmp_path, config):
    with RunStore.open(config, tmp_path) as store:
        store.log(0, {"eval/pass@1": 0.25})
        for step in (1, 2, 3):
            store.log(step, {"critic/score/mean": step / 10})
        rows = list(read_jsonl(store.folder / "metrics.jsonl"))
        state = run_state(store.folder)
    pace = sorted(b["time"] - a["time"] for a, b in itertools.pairwise(rows))[1]
    assert (state.status, state.step, state.total, state.reward) == ("running", 3, 100, 0.3)
    assert state.left == pytest.approx(97 * pace) and state.passed() == "pass@1 0.25 → 0.25"
    assert state.device == "cpu" and state.updated == pytest.approx(time.time(), abs=60)


def test_a_process_that_ended_before_its_run_began_is_a_failure(tmp_path, config):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder = tmp_path / "tiny" / "runs" / config.id
    folder.mkdir(parents=True)
    announce(folder, gone.pid, "starting")
    (folder / "run.log").write_text("[rlkit] started: x\nold\n[rlkit] started: x\nError: no such model\n")
    state = run_state(folder)
    assert (state.status, state.reason) == ("failed", "no such model")
