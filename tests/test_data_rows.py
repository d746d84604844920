"""Rows on disk: round trips, clear refusals, nothing half-written, files as sources, and Guru's files."""

import base64
import gzip
import json
from datetime import datetime
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import cases, records, table

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out, rows
from rlkit.data.check import reference_response
from rlkit.domains import resolve, sources
from rlkit.errors import UserError
from rlkit.rewards.grading import grade
from rlkit.types import Task

GOOD = {
    "data_source": "math__x", "prompt": [{"role": "user", "content": "1+1="}], "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"}, "extra_info": {"index": 3},
}  # fmt: skip


def some_tasks(count=30):
    kinds = ["math_problems", "zebra", "arc", "programs", "tables", "code_io"]
    return [sources.parse({"kind": kinds[k % 6]}).task(k) for k in range(count)]


def write(path, tasks) -> None:
    if path.suffix == ".parquet":
        assert rows.write(path, iter(tasks), progress=False) == len(tasks)
    else:
        path.write_text("\n".join(json.dumps(t.to_row()) for t in tasks))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_tasks_survive_the_disk_exactly_and_in_order(tmp_path, form):
    tasks, path = some_tasks(2 * rows.BATCH + 7), tmp_path / f"rows.{form}"
    write(path, tasks)
    back = list(rows.tasks(path))
    assert back == tasks and [t.id for t in back] == [t.id for t in tasks]


def test_files_of_all_domains_concatenate(tmp_path):
    for k, task in enumerate(some_tasks(6)):
        write(tmp_path / f"{k}.parquet", [task])
    assert pa.concat_tables(pq.read_table(tmp_path / f"{k}.parquet") for k in range(6)).num_rows == 6


def test_a_failure_in_the_middle_leaves_the_old_file_or_none(tmp_path):
    def broken():
        yield from some_tasks(6)
        raise RuntimeError("killed")

    path = tmp_path / "rows.parquet"
    with pytest.raises(RuntimeError):
        rows.write(path, broken(), progress=False)
    assert list(tmp_path.iterdir()) == []
    rows.write(path, some_tasks(3), progress=False)
    with pytest.raises(RuntimeError):
        rows.write(path, broken(), progress=False)
    assert len(list(rows.tasks(path))) == 3 and list(tmp_path.iterdir()) == [path]


DEEP = {"extra_info": "[" * 5000 + "]" * 5000}
COLUMNS, BAD = table("data_bad_rows")


@pytest.mark.parametrize(COLUMNS, [*BAD, ([], DEEP, "extra_info is no JSON .maximum recursion")])
def test_a_bad_row_is_refused_with_file_row_and_column(tmp_path, without, change, sentence):
    path = tmp_path / "rows.jsonl"
    bad = {name: value for name, value in {**GOOD, **change}.items() if name not in without}
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(bad))
    with pytest.raises(UserError, match=f"rows.jsonl, row 1: .*{sentence}"):
        list(rows.tasks(path))


@pytest.mark.parametrize(("name", "pieces", "sentence"), cases("files_unreadable"))
def test_a_file_that_cannot_be_read_is_named_in_one_sentence(tmp_path, name, pieces, sentence):
    """`pieces` are in Latin-1, each with how often it stands; None is a whole file that was cut."""
    rows.write(tmp_path / name, some_tasks(), progress=False)
    content = (tmp_path / name).read_bytes()[:-100]
    if pieces is not None:
        text = "".join(piece * times for piece, times in pieces).replace("GOOD", json.dumps(GOOD))
        content = text.encode("latin-1")
    (tmp_path / name).write_bytes(content)
    for read in (lambda: list(rows.tasks(tmp_path / name)), lambda: held_out(config(tmp_path / name))):
        with pytest.raises(UserError, match=sentence):
            read()
    (tmp_path / "whole.parquet").touch()
    with pytest.raises(UserError, match=r"no file .*Did you mean 'whole.parquet'"):
        list(rows.tasks(tmp_path / "whole.parque"))


def test_values_that_json_has_no_form_for(tmp_path):
    """A byte-order mark is no part of the first row. Bytes as a truth are refused; missing numbers of extra_info are
    missing, and dates are text."""
    (tmp_path / "x.jsonl").write_text(json.dumps(GOOD), encoding="utf-8-sig")
    assert next(rows.tasks(tmp_path / "x.jsonl")).ground_truth == "2"
    model = pa.array([{"ground_truth": b"\x00\x01"}])
    good = {k: [v] for k, v in GOOD.items() if k not in ("reward_model", "extra_info")}
    info = pa.array([{"share": float("nan"), "day": datetime(2025, 3, 1)}])
    pq.write_table(pa.table({**good, "reward_model": model}), tmp_path / "bytes.parquet")
    with pytest.raises(UserError, match=r"bytes.parquet, row 0: reward_model.ground_truth is no JSON value"):
        list(rows.tasks(tmp_path / "bytes.parquet"))
    columns = {**good, "reward_model": pa.array([{"ground_truth": "2"}]), "extra_info": info}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    (task,) = rows.tasks(tmp_path / "x.parquet")
    assert task.extra_info == {"share": None, "day": "2025-03-01 00:00:00"}


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_file_that_was_made_again_is_read_again(tmp_path, form):
    path = tmp_path / f"rows.{form}"

    def asked(words: str, c: RunConfig) -> set[str]:
        write(path, [Task.ask("math__x", f"{words} {k}?", str(k)) for k in range(40)])
        return {t.prompt[0]["content"].split()[0] for t in TaskStream(c, held_out(c)).batch(1)}

    same = config(path)
    for words, c in (("old", same), ("new", same), ("newer", config(path))):
        assert asked(words, c) == {words}


@pytest.mark.parametrize("unique", [-1, 20])
def test_a_run_that_has_begun_keeps_its_rows_when_the_file_changes(tmp_path, unique):
    path = tmp_path / "rows.jsonl"
    write(path, [Task.ask("math__x", f"{k}?", str(k)) for k in range(40)])
    c = config(path, train_max_samples=unique)
    tests = held_out(c)
    stream, alone = TaskStream(c, tests), TaskStream(c, tests)
    wanted = [[t.id for t in alone.batch(step)] for step in range(1, 4)]
    assert [t.id for t in stream.batch(1)] == wanted[0]
    write(path, [Task.ask("math__x", f"{k}!", str(k)) for k in range(9)])
    assert [[t.id for t in stream.batch(step)] for step in (2, 3)] == wanted[1:]


def config(path, **data):
    file = {"kind": "file", "path": str(path)}
    data = {"train": [file], "train_batch_size": 8, **data}
    return RunConfig.model_validate({"data": data, "evaluation": {"size": 10}})


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_file_is_a_source_split_by_row(tmp_path, form):
    path, tasks = tmp_path / f"rows.{form}", some_tasks(42)
    write(path, tasks)
    c = config(path)
    tests = held_out(c)
    trained = [t.id for step in range(1, 5) for t in TaskStream(c, tests).batch(step)]
    assert len(tests) == 10 and len(set(trained)) == 32  # 42 rows: 10 held out, 32 trained on once
    assert {t.id for t in tests} | set(trained) == {t.id for t in tasks}


def test_no_more_rows_than_exist_are_asked_for(tmp_path):
    path = tmp_path / "rows.parquet"
    rows.write(path, some_tasks(60), progress=False)
    too_many = config(path, train_max_samples=51)
    with pytest.raises(UserError, match="too few distinct tasks: 50 may be trained on and 51 are asked"):
        TaskStream(too_many, held_out(too_many)).batch(1)
    with pytest.raises(UserError, match=r"There is no file"):
        held_out(config(tmp_path / "absent.parquet"))
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(UserError, match=r"none.jsonl has no rows"):
        held_out(config(tmp_path / "none.jsonl"))


# Guru-RL-92k as it is published: every file, both variants. All content of tests/data/guru.jsonl is made up.

FILES = {name: list(content) for name, content in groupby(records("guru"), lambda case: case["file"])}


def squeezed(value: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(value).encode())).decode()


def published(name: str, compressed: bool = False) -> list[dict[str, Any]]:
    """The rows of a file by the published schema; `compressed` is the second published variant."""
    found = []
    for index, case in enumerate(FILES[name]):
        truth, info = case["ground_truth"], {"split": "train", "index": index, **case["extra_info"]}
        if compressed:
            text, truth = squeezed(info), {"compressed": squeezed(truth)}
            info = {f"part_{k // 20 + 1}": text[k : k + 20] for k in range(0, len(text), 20)}
        style = {} if case["data_source"] == "stem_web" else {"style": "rule"}
        found.append({
            "data_source": case["data_source"], "prompt": [{"role": "user", "content": case["question"]}],
            "ability": case["ability"], "apply_chat_template": True, "qwen2.5_7b_pass_rate": 0.25 * (index + 1),
            "qwen3_30b_pass_rate": 0.875, "reward_model": {**style, "ground_truth": truth}, "extra_info": info,
        })  # fmt: skip
    return found


@pytest.mark.parametrize("form", ["plain", "compressed", "jsonl"])
def test_every_file_is_read_in_both_variants_and_as_json(tmp_path, form):
    for name, content in FILES.items():
        given = published(name, form == "compressed")
        if form == "jsonl":
            (file := tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, given)))
        else:
            pq.write_table(pa.Table.from_pylist(given), file := tmp_path / f"{name}.parquet")
        tasks = list(rows.tasks(file))
        source = sources.parse({"kind": "file", "path": str(file)})
        assert source.tasks(range(source.total())) == tasks == [rows.to_task(row) for row in given]
        for task, case in zip(tasks, content, strict=True):
            columns = ("data_source", "ability", "ground_truth")
            assert [getattr(task, column) for column in columns] == [case[column] for column in columns]
            assert task.prompt == ({"role": "user", "content": case["question"]},)
            assert {**case["extra_info"], "qwen3_30b_pass_rate": 0.875}.items() <= task.extra_info.items()


def test_each_source_is_routed_and_its_truth_has_a_right_answer():
    for task in (rows.to_task(row) for name in FILES for row in published(name)):
        assert resolve(task.data_source)
        if task.data_source != "stem_web" and not task.data_source.startswith("codegen"):
            answer = reference_response(task)
            assert answer is not None
            assert grade(task.data_source, answer, task.ground_truth, task.extra_info).value == 1, task
