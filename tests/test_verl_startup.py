"""verl's start: which phase its log tells of, how long each took, and what a user is told meanwhile."""

import json
import os
from pathlib import Path

import pytest

import rlkit
from rlkit.errors import UserError
from rlkit.panels.watching import sentence
from rlkit.results.progress import run_state
from rlkit.verl import backend, startup, verl_config
from rlkit.verl.layout import Files
from rlkit.verl.startup import PHASES, Startup
from rlkit.verl.tail import Tail

LINES = {
    "starting Ray": "2026-11-28 06:27:24,742\tINFO worker.py:2038 -- Started a local Ray instance.",
    "starting the trainer": "\x1b[36m(TaskRunnerV1 pid=7)\x1b[0m INFO:06:28:create worker group dict_keys(['x'])",
    "loading weights": "\x1b[36m(TaskRunnerV1 pid=7)\x1b[0m INFO:06:28:actor and ref model engine initialized",
    "starting the rollout engine": "\x1b[36m(TaskRunnerV1 pid=7)\x1b[0m LLMServerManager: ['192.0.2.2:39329']",
}
"""As verl 0.9.1 with Ray 2.60 writes them."""
EAGER = "actor_rollout_ref.rollout.enforce_eager"


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(startup.time, "monotonic", lambda: now[0])
    return now


def test_phases_end_one_after_another(tmp_path, clock):
    log = tmp_path / "log.txt"
    start = Startup(log)
    assert start.phase == "starting Ray" and start.look(answered=False) == []  # no log yet
    for name, line in LINES.items():
        clock[0] += 10
        with log.open("a") as file:
            file.write(f"ray init kwargs\n{line[:20]}")
        assert start.look(answered=False) == []  # half a line
        assert (start.phase, start.waited) == (name, 10)
        with log.open("a") as file:
            file.write(f"{line[20:]}\nmore\n")
        assert start.look(answered=False) == [name]
    clock[0] += 5
    assert start.phase == "first answers" and start.total is None
    assert start.look(answered=True) == ["first answers"]
    assert start.seconds == dict.fromkeys(LINES, 10) | {"first answers": 5}
    assert start.total == 45 and start.phase == "" and start.look(answered=True) == []


def test_a_phase_that_the_log_lacks_is_missing_and_not_zero(tmp_path, clock):
    start, clock[0] = Startup(tmp_path / "log.txt"), 130.0
    (tmp_path / "log.txt").write_text(LINES["loading weights"] + "\n")
    assert start.look(answered=False) == ["loading weights"]
    assert start.seconds == {"loading weights": 30} and start.phase == "starting the rollout engine"
    clock[0] += 4
    assert start.look(answered=True) == ["first answers"] and start.total == 34


def test_every_phase_but_the_last_has_its_line():
    assert list(PHASES) == [*LINES, "first answers"]


def test_whole_lines_only(tmp_path):
    tail = Tail(tmp_path / "grows")
    assert tail.lines() == []
    (tmp_path / "grows").write_bytes(b"a\nb")
    assert tail.lines() == [b"a"] and tail.lines() == []
    with (tmp_path / "grows").open("ab") as file:
        file.write(b"c\n\n")
    assert tail.lines() == [b"bc", b""] and tail.offset == 6
    (tmp_path / "grows").write_bytes(b"new\n")
    assert tail.lines() == [b"new"]


def test_a_user_sees_the_phases_and_run_json_keeps_them(tmp_path, monkeypatch, capsys):
    def verl(command, environment, log, *, look, **_):
        log.write_text("\n".join(list(LINES.values())[:2]) + "\n")
        before = look()
        assert sentence(run_state(log.parents[2])) == "running · loading weights"
        with log.open("a") as file:
            file.write(LINES["loading weights"] + "\n")
        assert look() != before  # a phase that ends is progress
        return False

    monkeypatch.setattr(backend, "check_gpus", lambda config: None)
    monkeypatch.setattr(backend.composing, "compose", lambda found: {})
    monkeypatch.setattr(backend.composing, "as_yaml", lambda composed: "")
    monkeypatch.setattr(backend.launcher, "run", verl)
    kind = {"model.path": "ladder-10k", "model.warm_start.kind": "none", "study": "start"}
    run = rlkit.train(rlkit.load("params/verl_ladder.yaml", kind), root=tmp_path)
    said = capsys.readouterr().err
    assert f"verl's log: {run.folder}/verl/attempt-1/log.txt" in said
    assert "starting Ray: 0 s" in said and "loading weights: 0 s" in said
    info = json.loads((run.folder / "run.json").read_text())
    assert list(info["startup"]) == list(LINES)[:3] and info["startup_seconds"] is None
    assert info["phase"] == "starting the rollout engine" and info["status"] == "stopped"


def test_a_trl_that_verl_does_not_start_beside_is_refused_before_anything_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "version", {"trl": "1.16.0"}.__getitem__)
    config = rlkit.load("params/verl_ladder.yaml", {"study": "start"})
    with pytest.raises(UserError, match=r"does not start beside trl 1\.x.* pip uninstall trl"):
        rlkit.train(config, root=tmp_path, progress=False)
    assert not list(tmp_path.glob("start/runs/*/verl"))
    monkeypatch.setattr(backend, "version", {"trl": "0.29.1"}.__getitem__)
    backend.check_packages()


def test_the_environment_of_verl_s_processes(tmp_path, monkeypatch):
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    config = rlkit.load("params/verl_ladder.yaml", {"trainer.num_threads": 3})
    found = verl_config.environment(config, Files.of(tmp_path, str(tmp_path)))
    assert found["HF_HUB_OFFLINE"] == "1"  # the model is a folder
    assert found["RAY_USAGE_STATS_ENABLED"] == "1" and found["VLLM_NO_USAGE_STATS"] == "1"
    assert found["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"] and found["OMP_NUM_THREADS"] == "3"
    hub = verl_config.environment(
        rlkit.load("params/verl_ladder.yaml", {"algorithm.adv_estimator": "gae"}),
        Files.of(tmp_path, "org/model"),
    )
    assert "HF_HUB_OFFLINE" not in hub and "OMP_NUM_THREADS" not in hub
    assert hub["VERL_USE_EXTERNAL_MODULES"].endswith("rlkit.verl.value_head")


@pytest.mark.parametrize(
    "steps, verl, eager", [(99, {}, True), (100, {}, False), (99, {EAGER: False}, False)]
)
def test_a_short_run_captures_no_cuda_graphs(steps, verl, eager):
    sizes = {"trainer.total_training_steps": steps, "data.max_response_length": 100}
    config = rlkit.load("params/verl_ladder.yaml", sizes).model_copy(update={"verl": verl})
    assert verl_config.settings(config, Files.of(Path("/run"), "/model"))[EAGER] is eager
