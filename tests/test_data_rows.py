"""Rows on disk: round trips, clear refusals, nothing half-written, and files as sources."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out, rows
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.types import Task

GOOD = {
    "data_source": "math__x",
    "prompt": [{"role": "user", "content": "1+1="}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 3},
}


def some_tasks(count=30):
    kinds = ["math_problems", "zebra", "grid", "programs", "tables", "code_io"]
    return [sources.parse({"kind": kinds[k % 6]}).task(k) for k in range(count)]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "json"])
def test_tasks_survive_the_disk_exactly(tmp_path, form):
    tasks, path = some_tasks(), tmp_path / f"rows.{form}"
    if form == "parquet":
        assert rows.write(path, tasks, progress=False) == 30
    else:
        lines = [rows.to_row(t) for t in tasks]
        path.write_text(json.dumps(lines) if form == "json" else "\n".join(map(json.dumps, lines)))
    back = list(rows.tasks(path))
    assert back == tasks and [t.id for t in back] == [t.id for t in tasks]


def test_files_of_all_domains_concatenate(tmp_path):
    for k, task in enumerate(some_tasks(6)):
        rows.write(tmp_path / f"{k}.parquet", [task], progress=False)
    tables = [pq.read_table(tmp_path / f"{k}.parquet") for k in range(6)]
    assert pa.concat_tables(tables).num_rows == 6


def test_more_than_one_batch_is_written_and_the_order_kept(tmp_path):
    tasks = [Task.ask("math__x", f"{k}?", str(k)) for k in range(2 * rows.BATCH + 7)]
    rows.write(tmp_path / "x.parquet", iter(tasks), progress=False)
    assert [t.ground_truth for t in rows.tasks(tmp_path / "x.parquet")] == [str(k) for k in range(len(tasks))]


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


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"prompt": None}, "column 'prompt' is empty"),
        ({"data_source": 7}, "data_source is 7, not a name"),
        ({"data_source": ""}, "data_source is '', not a name"),
        ({"prompt": "1+1="}, "prompt is a str, not a list of messages"),
        ({"prompt": []}, "prompt is a list, not a list of messages"),
        ({"prompt": [{"role": "user"}]}, "not a message with role and content"),
        ({"prompt": [{"role": "user", "content": "  "}]}, "not a message with role and content"),
        ({"prompt": ["1+1="]}, "prompt holds '1\\+1='"),
        ({"reward_model": {"style": "rule"}}, "reward_model has no ground_truth"),
        ({"reward_model": "2"}, "reward_model has no ground_truth"),
        ({"extra_info": 5}, "extra_info is a int, not a mapping"),
        ({"extra_info": "{no json"}, "row 1: Expecting property name"),
    ],
)
def test_a_bad_row_is_refused_with_file_row_and_column(tmp_path, change, sentence):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps({**GOOD, **change}))
    with pytest.raises(UserError, match=f"rows.jsonl, row 1: .*{sentence.removeprefix('row 1: ')}"):
        list(rows.tasks(path))


def test_a_missing_column_is_named_with_the_nearest_one(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**{k: v for k, v in GOOD.items() if k != "prompt"}, "prompts": []}))
    with pytest.raises(UserError, match=r"column 'prompt' is missing. Did you mean 'prompts'"):
        list(rows.tasks(path))


def test_files_that_cannot_be_read_are_named(tmp_path):
    whole = tmp_path / "whole.parquet"
    rows.write(whole, some_tasks(), progress=False)
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-100])
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "x.json").write_text('{"a": 1}')
    (tmp_path / "y.json").write_text('{"a": 1}\n{"a": 2}')
    (tmp_path / "z.jsonl").write_text(json.dumps(GOOD) + "\n[1]")
    (tmp_path / "x.csv").write_text("a,b")
    for name, sentence in (
        ("cut.parquet", "cut.parquet is no whole parquet file"),
        ("empty.parquet", "empty.parquet is no whole parquet file"),
        ("whole.parque", r"no file .*Did you mean 'whole.parquet'"),
        ("x.json", "x.json holds a dict, not a list of rows"),
        ("y.json", "one object a line is named .jsonl"),
        ("z.jsonl", "z.jsonl, row 1: a list, not an object"),
        ("x.csv", "neither .parquet nor .json nor .jsonl"),
    ):
        with pytest.raises(UserError, match=sentence):
            list(rows.tasks(tmp_path / name))


def config(path, **data):
    file = {"kind": "file", "path": str(path), **data.pop("file", {})}
    return RunConfig.model_validate(
        {"data": {"train": [file], "train_batch_size": 8, **data}, "evaluation": {"size": 10}}
    )


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_file_is_a_source_split_by_row(tmp_path, form):
    path, tasks = tmp_path / f"rows.{form}", some_tasks(42)
    if form == "parquet":
        rows.write(path, tasks, progress=False)
    else:
        path.write_text("\n".join(json.dumps(rows.to_row(t)) for t in tasks))
    c = config(path)
    tests = held_out(c)
    trained = [t.id for step in range(1, 5) for t in TaskStream(c, tests).batch(step)]
    assert len(tests) == 10 and len(set(trained)) == 32  # 42 rows: 10 held out, 32 trained on once
    assert {t.id for t in tests} | set(trained) == {t.id for t in tasks}


def test_rows_of_a_file_can_be_chosen_and_no_more_than_exist(tmp_path):
    path = tmp_path / "rows.parquet"
    rows.write(path, some_tasks(60), progress=False)
    only = config(path, file={"data_sources": ["table__generated"]}, train_max_samples=4)
    only = only.model_copy(update={"evaluation": only.evaluation.model_copy(update={"size": 2})})
    batch = TaskStream(only, held_out(only)).batch(1)
    assert {t.data_source for t in batch} == {"table__generated"} and len({t.id for t in batch}) == 4
    with pytest.raises(UserError, match=r"no row of data_source 'table__x'.*It has codegen__composed"):
        held_out(config(path, file={"data_sources": ["table__x"]}))
    too_many = config(path, train_max_samples=51)
    with pytest.raises(
        UserError, match="file has too few distinct tasks: 50 may be trained on and 51 are asked"
    ):
        for step in range(1, 8):
            TaskStream(too_many, held_out(too_many)).batch(step)
    with pytest.raises(UserError, match=r"There is no file"):
        held_out(config(tmp_path / "absent.parquet"))
