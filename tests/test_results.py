"""Results: what is written comes back, no crash or second process spoils it, and one damaged run spoils no other."""

import errno
import io
import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from cases import table
from rich.console import Console

import rlkit
from rlkit import files
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.read import read, read_configs, read_evals
from rlkit.results.run_state import run_state
from rlkit.results.store import RunStore
from rlkit.studies.status import status_table


def config(**fields) -> RunConfig:
    return RunConfig(study="s", **fields)


def eval_row(task: str, sample: int, correct: bool | None, source: str = "math__arithmetic") -> dict:
    graded = correct is not None
    row = {"task_id": task, "data_source": source, "sample": sample, "correct": correct, "response": "42"}
    row |= {"tokens": np.int64(3), "finish_reason": "stop", "value": float(correct) if graded else None}
    return row | {"error": None if graded else "the grader timed out"}


def test_a_run_comes_back_as_a_tidy_table(tmp_path):
    with RunStore.open(config(seed=3), tmp_path) as store:
        store.update(parameters_non_embedding=np.int64(29_000), held_out_hash="ab", status="finished")
        store.log(0, {"eval/pass@1": 0.5, "eval/pass@1/math__arithmetic": 0.5, "eval/response_length/mean": 3})
        store.log_evals(0, [eval_row("a", 0, True), eval_row("a", 1, False), eval_row("b", 0, None)])
        numbers = {"critic/score/mean": np.float32(0.25), "actor/grad_norm": float("nan")}
        store.log(1, {**numbers, "score/openai/gsm8k": 1})
    df = rlkit.read(tmp_path / "s")
    assert set(df["seed"]) == {3} and set(df["model.path"]) == {"ladder-100k"}
    assert set(rlkit.read_configs(tmp_path / "s")["data.train.0.kind"]) == {"arithmetic"}
    assert set(df["parameters_non_embedding"]) == {29_000} and set(df["status"]) == {"finished"}
    rows = df.set_index(["step", "metric", "data_source"])
    assert rows.loc[(1, "critic/score/mean", "all"), "value"] == 0.25
    assert np.isnan(rows.loc[(1, "actor/grad_norm", "all"), "value"])
    assert rows.loc[(1, "score", "openai/gsm8k"), "value"] == 1
    assert rows.loc[(0, "eval/pass@1", "math__arithmetic"), "value"] == 0.5
    assert rows.loc[(0, "eval/response_length/mean", "all"), "value"] == 3  # of no source named mean


def test_the_same_is_read_from_run_study_and_outputs_and_the_stored_config_repeats_the_run(tmp_path):
    for seed in (0, 1):
        with RunStore.open(config(seed=seed), tmp_path) as store:
            store.log(1, {"actor/lr": 1e-4, "eval/pass@1": 0.5})
    assert len(rlkit.read(tmp_path)) == len(rlkit.read(tmp_path / "s")) == 4
    assert rlkit.read(store.folder, metrics="eval/*")["metric"].tolist() == ["eval/pass@1"]
    wanted = config(seed=1, model={"path": "ladder-30k"}, rollout={"n": 4})
    with RunStore.open(wanted, tmp_path) as store:
        again = rlkit.load(store.folder / "config.yaml")
    assert again == wanted and again.id == wanted.id


def test_an_ungraded_sample_stays_ungraded_and_the_latest_evaluation_of_a_step_counts(tmp_path):
    with RunStore.open(config(), tmp_path) as store:
        store.log_evals(0, [eval_row("a", 0, True)])
        store.log_evals(5, [eval_row("a", 0, False), eval_row("b", 0, False)])
        store.log_evals(5, [eval_row("a", 0, None)])  # an evaluation that is made again counts once
        store.update(parameters_total=7)
    evals = rlkit.read_evals(tmp_path)
    assert evals["correct"].isna().tolist() == [False, True]
    assert evals["correct"].mean() == 1.0
    assert evals["error"].tolist()[1] == "the grader timed out"
    assert set(evals["parameters_total"]) == {7}


def test_resuming_drops_what_comes_after_the_checkpoint(tmp_path):
    with RunStore.open(config(), tmp_path) as store:
        for step in range(4):
            store.log(step, {"actor/lr": step})
            store.log_evals(step, [eval_row("a", 0, True)])
            store.log_samples(step, [{"response": "x"}])
    with RunStore.open(config(), tmp_path) as store:
        store.truncate(2)
        store.log(3, {"actor/lr": 30})
    assert rlkit.read(tmp_path)["value"].tolist() == [0, 1, 2, 30]
    assert rlkit.read_evals(tmp_path)["step"].tolist() == [0, 1, 2]
    assert len((store.folder / "samples.jsonl").read_text().splitlines()) == 3
    assert len(json.loads((store.folder / "run.json").read_text())["attempts"]) == 2


def test_a_line_cut_by_a_crash_breaks_neither_reading_nor_the_next_line(tmp_path):
    with RunStore.open(config(), tmp_path) as store:
        store.log(1, {"actor/lr": 1.0})
        with open(store.folder / "metrics.jsonl", "a") as file:
            file.write('{"step": 2, "actor/l')
        assert rlkit.read(tmp_path)["value"].tolist() == [1.0]
    with RunStore.open(config(), tmp_path) as store:
        store.truncate(1)  # as each attempt begins
        store.log(2, {"actor/lr": 2.0})
    assert rlkit.read(tmp_path)["value"].tolist() == [1.0, 2.0]


def test_a_second_process_is_refused_with_the_owner_named(tmp_path):
    code = "import sys; from rlkit.config import RunConfig; from rlkit.results.store import RunStore;"
    code += "RunStore.open(RunConfig(study='s'), sys.argv[1]).__enter__()"
    with RunStore.open(config(), tmp_path) as store:
        before = (store.folder / "run.json").read_text()
        second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
        assert f"pid {os.getpid()} on" in second.stderr.splitlines()[-1]
        assert (store.folder / "run.json").read_text() == before


def test_a_full_disk_and_an_unwritable_folder_are_said_before_the_start(tmp_path, monkeypatch):
    usage = files.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(UserError, match="has 1 MB free and 20 MB are needed"), RunStore.open(config(), tmp_path):
        pass
    monkeypatch.undo()
    (other := tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="There are no runs under"):
        rlkit.read(other)
    (other / "s").write_text("a file where the study's folder should be")
    with pytest.raises(UserError, match=r"Cannot write .*choose another folder"), RunStore.open(config(), other):
        pass


def test_what_a_killed_writer_left_goes_with_a_write_an_hour_later(tmp_path):
    path = tmp_path / "run.ipynb"
    script = f"from rlkit.files import replacing\nimport os, signal\nwith replacing({str(path)!r}) as t:\n"
    killed = f"{script}    t.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", killed], check=False)
    (left,) = tmp_path.iterdir()
    files.write_text(path, "soon after")
    assert left.exists()  # another machine of this name may be writing it
    os.utime(left, (0, 0))
    with files.replacing(path) as temporary:
        temporary.write_text("whole")
        files.write_text(path, "of another writer that lives")
        assert temporary.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["run.ipynb"] and path.read_text() == "whole"


def test_a_write_that_fails_leaves_the_old_file_and_an_error_of_the_caller_is_its_own(tmp_path):
    with pytest.raises(FileNotFoundError), files.replacing(tmp_path / "x") as temporary:
        temporary.write_text("x")
        Path(tmp_path / "missing").read_text()
    target = tmp_path / "run.json"
    files.write_text(target, "old")
    with pytest.raises(UserError, match="No space left on device"), files.replacing(target) as temporary:
        temporary.write_text("half of the n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_provenance_is_recorded_and_the_commit_stays_with_the_numbers_that_it_made(tmp_path, monkeypatch):
    with RunStore.open(config(), tmp_path) as store:
        info = json.loads((store.folder / "run.json").read_text())
    assert info["versions"]["verl"] == "0.9.1" and info["hardware"]["cores"] >= 1
    assert info["process"]["pid"] == os.getpid() and info["status"] == "running"
    assert set(info["git"]) in ({"commit", "dirty"}, set())
    for commit, steps in (("a", 2), ("b", 0), ("c", 1)):
        monkeypatch.setattr("rlkit.results.store.git_state", lambda commit=commit: {"commit": commit, "dirty": False})
        with RunStore.open(config(), tmp_path) as store:
            for step in range(steps):
                store.log(step, {"x": 1.0})
        made_by = "a" if commit == "b" else commit  # nothing was made in an attempt that only looked
        info = json.loads((store.folder / "run.json").read_text())
        assert info["git"]["commit"] == made_by and info["attempts"][-1]["commit"] == commit


@pytest.fixture
def study(tmp_path):
    for name in ("good", "bad"):
        folder = tmp_path / "s" / "runs" / name
        folder.mkdir(parents=True)
        config = {"study": "s", "seed": 0, "model": {"path": name}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "run.json").write_text(json.dumps({"status": "finished", "git": {"commit": "abc"}}))
        line = json.dumps({"step": 0, "time": 1.0, "eval/pass@1": 0.5, "loss": 1.0})
        (folder / "metrics.jsonl").write_text(f"{line}\n")
        rows = {"step": 0, "task_id": ["a", "b"], "data_source": "x", "sample": 0, "correct": [True, None]}
        pd.DataFrame(rows).assign(response="long").to_parquet(folder / "evals.parquet")
    return tmp_path / "s"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
COLUMNS, DAMAGED = table("results_damaged")


@pytest.mark.parametrize(COLUMNS, [*DAMAGED, ("metrics.jsonl", DEEP), ("run.json", DEEP)], ids=range(21))
@pytest.mark.filterwarnings("ignore:.*is left out")
def test_a_damaged_file_of_one_run_spoils_no_other(study, file, content):
    path = study / "runs" / "bad" / file
    path.write_bytes(content.replace("HOST", socket.gethostname()).encode("latin-1"))
    found = read(study)
    assert found.loc[found["run"] == "good", "value"].tolist() == [0.5, 1.0]
    told = pytest.warns(UserWarning, match=r"evals\.parquet") if path.suffix == ".parquet" else nullcontext()
    with told:
        assert set(read_evals(study)["run"]) >= {"good"}
    Console(width=200, file=(shown := io.StringIO())).print(status_table(study))
    assert "good" in shown.getvalue() or "a, seed" in shown.getvalue()
    assert run_state(study / "runs" / "good").status == "finished"


def test_a_number_that_is_missing_makes_no_run_unreadable(study):
    (study / "runs" / "bad" / "metrics.jsonl").write_text(
        '{"step": 0, "time": 1.0, "critic/score/mean": null, "eval/pass@1": null, "actor/grad_norm": null}'
    )
    assert run_state(study / "runs" / "bad").status == "finished"
    (study / "runs" / "bad" / "metrics.jsonl").write_text('{"step": "x"}\n{"step": 2}\n')
    state = run_state(study / "runs" / "bad")
    assert state.status == "unreadable" and "bad is damaged (TypeError: " in state.reason


def test_rows_have_the_keys_that_differ_and_every_key_is_joined_from_the_configs(study):
    for lr, name in ((1e-3, "good"), (2e-3, "bad")):
        actor = {"clip_ratio": 0.2, "optim": {"lr": lr, "betas": [0.9, 0.99]}}
        config = {"study": "s", "seed": 0, "model": {"path": "m"}, "actor": actor, "rollout": {"n": 8}}
        (study / "runs" / name / "config.yaml").write_text(yaml.safe_dump(config))
    found, configs = read(study), read_configs(study)
    assert found.groupby("run")["actor.optim.lr"].first().to_dict() == {"bad": 2e-3, "good": 1e-3}
    assert set(found["rollout.n"]) == {8} and "actor.clip_ratio" not in found
    assert configs.index.tolist() == ["bad", "good"] and set(configs["commit"]) == {"abc"}
    assert configs["actor.optim.betas"].tolist() == ["[0.9, 0.99]"] * 2
    joined = found.join(configs["actor.clip_ratio"], on="run")
    assert len(joined) == len(found) == 4 and set(joined["actor.clip_ratio"]) == {0.2}


@pytest.mark.parametrize("column", ["correct", "step", "task_id"])
def test_evaluations_without_a_column_are_left_out_with_a_warning(study, column):
    path = study / "runs" / "bad" / "evals.parquet"
    pd.read_parquet(path).drop(columns=column).to_parquet(path)
    told = f"bad/evals.parquet cannot be read and is left out: it has no column '{column}'"
    with pytest.warns(UserWarning, match=told):
        assert set(read_evals(study)["run"]) == {"good"}


def test_the_state_of_a_long_run_needs_its_first_last_and_evaluated_steps(study):
    rows = [{"step": k, "time": 100.0 + 2 * k, "critic/score/mean": k / 1000} for k in range(501)]
    for step, passed in ((0, 0.25), (250, 0.5)):
        rows[step]["eval/pass@1"] = passed
    log = study / "runs" / "good" / "metrics.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 501, "ti')
    state = run_state(log.parent)
    assert (state.step, state.reward, state.before, state.now) == (500, 0.5, 0.25, 0.5)
