"""Studies: what is planned, what is frozen, how runs are executed, fail, are interrupted and continue.

The training notebook of these tests writes a run's results without training anything.
"""

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest
from cases import DATA, table
from study_folder import write_notebook
from waiting import wait_for

import rlkit
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.results.store import RunStore
from rlkit.studies.executors import Job
from rlkit.studies.plan import make_plan
from rlkit.studies.study import StudyFailed, end, study

TRAIN = (DATA / "study_trainer.txt").read_text()
ANALYSIS = "import rlkit\nopen('analysed.txt', 'a').write('x')\nlen(rlkit.read(study))"
STUDY = (DATA / "study_of_two_sizes.yaml").read_text()


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with a study of four runs, in which the test's process works."""
    notebooks = tmp_path / "notebooks"
    write_notebook(notebooks / "train.ipynb", "config = ''\noverrides = {}\nroot = 'outputs'", TRAIN)
    write_notebook(notebooks / "analysis.ipynb", "study = ''\nlaw = 'power'\nx = ''", ANALYSIS)
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "tiny.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    cost = SimpleNamespace(flops=1e9, seconds=1.0)
    monkeypatch.setattr("rlkit.sizing.estimate.estimate", lambda config: cost)
    monkeypatch.setattr("rlkit.sizing.estimate.estimate_warm_start", lambda config: (0.0, 0.0))
    return tmp_path


def calls(project: Path) -> list[str]:
    path = project / "calls.txt"
    return path.read_text().split() if path.exists() else []


def edit(project: Path, old: str, new: str) -> None:
    path = project / "params" / "tiny.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_every_cell_and_seed_is_a_run_and_overrides_reach_them(project):
    plan = make_plan("params/tiny.yaml")
    names = [f"{r.config.study} {r.config.model.path} {r.config.seed} {r.held_out}" for r in plan.runs]
    assert names == [f"tiny ladder-{size} {seed} {size == '60k'}" for size in ("30k", "60k") for seed in (0, 1)]
    assert len({run.id for run in plan.runs}) == 4
    grid = {"grid.model.path": ["ladder-60k", "ladder-1m"]}
    plan = make_plan("params/tiny.yaml", {"run.trainer.total_training_steps": 7, **grid, "seeds": [5]})
    assert [(r.config.model.path, r.config.seed) for r in plan.runs] == [("ladder-60k", 5), ("ladder-1m", 5)]
    assert plan.runs[0].config.trainer.total_training_steps == 7
    assert plan.runs[0].config == rlkit.load("params/tiny.yaml", dict(plan.runs[0].overrides))
    keys = ("seed", "steps", "lr", "batch_size")
    huge = {f"grid.model.warm_start.{key}": list(range(1, 101)) for key in keys}
    with pytest.raises(UserError, match="variants and seeds make 400,000,000 runs: leave 10,000 at most"):
        make_plan("params/tiny.yaml", huge)


VARIANTS = """variants:
  short: {data.max_response_length: 8}
  long: {data.max_response_length: 16, trainer.total_training_steps: 5}
grid:"""


def test_variants_are_combined_with_the_grid_and_found_in_results(project):
    edit(project, "grid:", VARIANTS)
    edit(project, "  model.path: [ladder-60k]", "  variant: [long]")
    plan = make_plan("params/tiny.yaml", {"seeds": [0]})
    cells = ["short, ladder-30k", "short, ladder-60k", "long, ladder-30k", "long, ladder-60k"]
    assert [(r.name, r.held_out) for r in plan.runs] == [(cell, "long" in cell) for cell in cells]
    assert [r.config.trainer.total_training_steps for r in plan.runs] == [3, 3, 5, 5]
    changed = make_plan("params/tiny.yaml", {"seeds": [0], "variants.short.data.max_response_length": 4})
    assert changed.runs[0].config.data.max_response_length == 4

    plan.record()
    for run in plan.runs:
        with RunStore.open(run.config, "outputs") as store:
            store.log(0, {"eval/pass@1": 0.5})
    df = rlkit.read("outputs/tiny")
    assert set(zip(df["variant"], df["cell"], strict=True)) == {(cell.split(",")[0], cell) for cell in cells}
    make_plan("params/tiny.yaml", {"seeds": [0], "grid.model.path": ["ladder-30k"]}).record()
    left = rlkit.read("outputs/tiny").set_index("model.path")["cell"]  # of runs that have left it: none
    assert left["ladder-60k"].isna().tolist() == [True, True]
    assert sorted(left["ladder-30k"]) == ["long, ladder-30k", "short, ladder-30k"]


def test_a_notebook_that_calls_the_study_is_given_what_the_study_was_called_with(project):
    parameters = "params = ''\noverrides = {}\nroot = ''\nlaw = 'power'"
    write_notebook(project / "notebooks" / "analysis.ipynb", parameters)
    changes = {"seeds": [3], "analysis.law": "tan"}
    assert make_plan("params/tiny.yaml", changes).analysis == {
        "params": "params/tiny.yaml", "overrides": changes, "root": "outputs", "law": "tan",
    }  # fmt: skip


@pytest.mark.parametrize(*table("studies_bad_input_is_one_sentence"))
def test_bad_input_is_one_sentence_and_nothing_is_started(project, old, new, sentence):
    edit(project, old, new)
    with pytest.raises(UserError, match=sentence):
        study("params/tiny.yaml")
    assert not (project / "outputs").exists()


def test_a_dry_run_writes_nothing_and_loads_neither_verl_nor_transformers(project, capsys):
    result = study("params/tiny.yaml", dry_run=True)
    assert len(result.runs) == 4 and not (project / "outputs").exists()
    shown = capsys.readouterr()
    assert "ladder-60k, seed 1" in shown.out and "4.0e+09 FLOPs" in shown.out
    assert shown.err.startswith("Checking 4 runs of params/tiny.yaml: ")
    # Each takes seconds, which a plan of ladder models and of verl's own algorithms does without.
    code = "import sys, rlkit; rlkit.study('params/tiny.yaml', {'run.algorithm.adv_estimator': 'rloo'}, dry_run=True)"
    loaded = f"{code}; print({{'verl', 'ray', 'transformers'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "set()", done


def test_a_study_without_notebooks_of_its_own_is_trained_by_those_of_rlkit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(STUDY)
    plan = make_plan("tiny.yaml")
    assert len(plan.runs) == 4 and plan.analysis["study"] == "outputs/tiny"
    Path("other.yaml").write_text(STUDY + "notebook: notebooks/mine.ipynb\n")
    with pytest.raises(UserError, match="no notebook notebooks/mine.ipynb. Call rlkit in the folder"):
        make_plan("other.yaml")


def test_the_plan_says_how_far_each_run_is_and_prices_what_is_left(project, capsys):
    plan = make_plan("params/tiny.yaml")
    plan.record()
    for run, status, step in zip(plan.runs, ("finished", "stopped", "stopped"), (3, 2, 0), strict=False):
        with RunStore.open(run.config, "outputs") as store:
            store.update(status=status)
            if step:
                (store.checkpoints / f"step_{step}").mkdir(parents=True)
    write_notebook(plan.runs[0].notebook, "")
    study("params/tiny.yaml", dry_run=True, workers=1)
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "seed" in line]
    assert [row[-1] for row in rows] == ["done", "continues at 2/3", "to do", "to do"]
    assert [row[2] for row in rows] == ["", "3.3e+08", "1.0e+09", "1.0e+09"]
    assert "3 of 4 runs to do: 2.3e+09 FLOPs, about 2 s with 1 at a time on an idle machine." in shown


def test_the_plan_prices_each_warm_start_that_is_not_made_once(project, capsys, monkeypatch):
    from rlkit.training.warm_cache import place

    monkeypatch.setattr("rlkit.sizing.estimate.estimate_warm_start", lambda config: (5e8, 9.0))
    edit(project, "grid:\n", "grid:\n  actor.optim.lr: [1.0e-3, 1.0e-4]\n")  # cells of one model share it

    def shown() -> tuple[list[str], str]:
        study("params/tiny.yaml", dry_run=True, workers=1)
        out = capsys.readouterr().out
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
        return [row[0] for row in rows if row and row[2] == "5.0e+08"], out

    rows, out = shown()
    assert rows == ["warm start of optim.lr = 0.001,"] * 2
    assert {"ladder-30k", "ladder-60k"} <= set(out.split())
    assert "8 of 8 runs to do: 9.0e+09 FLOPs, about 26 s" in out
    folder = place(make_plan("params/tiny.yaml").runs[0].config)
    assert folder is not None
    write_text(folder / "warm_start.json", '{"flops": 1.0}')
    rows, out = shown()
    assert rows == ["warm start of optim.lr = 0.001,"]
    assert "8 of 8 runs to do: 8.5e+09 FLOPs, about 17 s" in out
    own = make_plan("params/tiny.yaml", {"run.model.warm_start.seed": "run"})
    assert [run.config.model.warm_start.seed for run in own.runs] == [run.config.seed for run in own.runs]
    assert {seconds for _, seconds in own.warm_starts.values()} == {9.0, 18.0}  # of two seeds, one is made


@pytest.mark.parametrize("models", [["ladder-30k", "ladder-60k"], ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-3B"]])
def test_a_plan_makes_each_task_once_however_many_cells_share_its_source(project, monkeypatch, models):
    made: list[tuple[int, int]] = []
    trace = sources["string_trace"]
    task = trace.task
    monkeypatch.setattr(trace, "task", lambda self, i: made.append((self.length, i)) or task(self, i))
    edit(project, "grid:", "variants: {a: {data.order: mixed}, b: {data.order: curriculum}}\ngrid:")
    changes = {"seeds": [0], "holdout": {}, "grid.model.path": models, "run.trainer.total_training_steps": 20}
    sources_of_all = [{"kind": "string_trace", "length": length} for length in (3, 4)]
    plan = make_plan("params/tiny.yaml", {**changes, "run.data.train": sources_of_all})
    assert len(plan.costs) == 4 and len(made) == len(set(made)) > 200  # held-out tasks and a first batch
    if models[0].startswith("Qwen"):  # a curriculum's first batch takes all of them to find
        assert len(made) < 500


def test_a_run_keeps_the_threads_that_its_file_names_and_held_out_cells_are_frozen_before_it(project):
    plan = make_plan("params/tiny.yaml").with_threads(2)
    assert {run.overrides["trainer.num_threads"] for run in plan.runs} == {2}
    edit(project, "total_training_steps: 3", "total_training_steps: 3, num_threads: 4")
    plan = make_plan("params/tiny.yaml").with_threads(2)
    loaded = [rlkit.load("params/tiny.yaml", dict(run.overrides)) for run in plan.runs]
    assert {run.trainer.num_threads for run in [*loaded, *(run.config for run in plan.runs)]} == {4}
    make_plan("params/tiny.yaml").record()
    frozen = json.loads((project / "outputs/tiny/study.json").read_text())["holdout"]
    assert frozen == {"model.path": ["ladder-60k"]}
    edit(project, "  model.path: [ladder-60k]", "  model.path: [ladder-30k]")
    with pytest.raises(UserError, match="what is held out cannot change"):
        study("params/tiny.yaml")


def test_failed_runs_do_not_stop_the_rest_and_the_next_call_continues(project, capsys, monkeypatch):
    edit(project, "[ladder-30k, ladder-60k]\nseeds", "[ladder-60k]\nseeds")
    edit(project, "holdout:\n  model.path: [ladder-60k]", "holdout: {seed: [0]}")
    (project / "fail").touch()
    first = study("params/tiny.yaml", workers=2)
    assert list(first.failed) == [run for run in first.runs if "-s1-" in run] and len(calls(project)) == 2
    assert "RuntimeError: the disk melted" in first.failed[first.runs[1]]
    shown = capsys.readouterr().out
    assert "the disk melted" in shown and "rlkit.read" not in shown
    assert shown.count("ladder-60k, seed 0: step 1: half of the responses were cut") == 1
    assert not (project / "analysed.txt").exists()

    (project / "fail").unlink()
    second = study("params/tiny.yaml", workers=2)
    assert not second.failed and calls(project)[2:] == list(first.failed)
    shown = capsys.readouterr().out
    assert shown.count("half of the responses were cut") == 1  # what the finished run said is not repeated
    assert "rlkit status outputs/tiny --watch" in shown
    assert 'rlkit.read("outputs/tiny")' in shown and "rlkit figures outputs/tiny" in shown
    assert (project / "analysed.txt").read_text() == "x"
    kept = {path.name for path in (project / "outputs/tiny/notebooks").iterdir()}
    assert kept == {"analysis.ipynb", *(f"{run}.ipynb" for run in second.runs)}

    third = study("params/tiny.yaml", workers=2)
    assert not third.failed and len(calls(project)) == 3

    df = rlkit.read("outputs/tiny").set_index("seed")
    assert set(df["run"]) == set(third.runs)
    assert set(df["cell"]) == {"ladder-60k"}
    assert set(df.loc[0, "held_out"]) == {True} and set(df.loc[1, "held_out"]) == {False}
    assert set(df.loc[df["metric"] == "threads", "value"]) == {1.0}

    monkeypatch.setattr("rlkit.studies.study.train_all", lambda plan, executor: first.failed)
    with pytest.raises(StudyFailed, match=r"1 of 2 runs failed\. .*RuntimeError: the disk melted"):
        study("params/tiny.yaml", analyse=False)  # from the notebook that would go on with its tables


def begin(project: Path) -> subprocess.Popen[str]:
    """`rlkit study` in a process of its own, up to the moment where both of its runs are training."""
    (project / "wait").touch()
    command = [sys.executable, "-m", "rlkit", "study", "params/tiny.yaml", "seeds=[0]", "--workers=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: len(list(project.glob("outputs/tiny/runs/*/metrics.jsonl"))) == 2)
    return process


def test_ctrl_c_ends_runs_in_order_with_status_130(project):
    process = begin(project)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Ending 2 runs at the next checkpoint" in output
    assert not any(child.is_running() for child in children)
    states = {json.loads(p.read_text())["status"] for p in project.glob("outputs/tiny/runs/*/run.json")}
    assert states == {"stopped"}


def test_a_run_that_goes_on_after_an_interrupt_is_told_again(project, monkeypatch):
    plan, told, steps = make_plan("params/tiny.yaml"), [], count(step=3)
    heard = SimpleNamespace(interrupt=lambda: told.append("heard"), done=lambda: told.count("deaf") > 1)
    deaf = SimpleNamespace(interrupt=lambda: told.append("deaf"), done=heard.done)
    names = {plan.runs[0].folder: "deaf", plan.runs[1].folder: "heard"}

    def state(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(step=next(steps) if names[folder] == "deaf" else 7)

    monkeypatch.setattr("rlkit.studies.study.run_state", state)
    monkeypatch.setattr("rlkit.studies.study.HEARD", 0.01)
    end({plan.runs[0]: cast(Job, deaf), plan.runs[1]: cast(Job, heard)})
    assert told == ["deaf", "heard", "deaf"]


@pytest.mark.slow(reason="starts a whole study only to kill it")
def test_workers_end_when_the_study_is_killed(project):
    process = begin(project)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4  # two workers, each with its kernel
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(c.is_running() and c.status() != "zombie" for c in children), 60)


def test_runs_of_one_model_do_not_wait_for_each_others_warm_start(project, monkeypatch):
    cost = {"ladder-30k": 1e9, "ladder-60k": 2e9}
    costs = {path: SimpleNamespace(flops=flops, seconds=1.0) for path, flops in cost.items()}
    monkeypatch.setattr("rlkit.sizing.estimate.estimate", lambda config: costs[config.model.path])

    def order(**changes) -> list[tuple[str, int]]:
        plan = make_plan("params/tiny.yaml", changes)
        return [(run.config.model.path[7:], run.config.seed) for run in plan.to_do]

    assert order() == [("60k", 0), ("30k", 0), ("60k", 1), ("30k", 1)]
    as_it_is = {"run.model.warm_start": {"kind": "none"}}
    assert order(**as_it_is) == [("60k", 0), ("60k", 1), ("30k", 0), ("30k", 1)]
