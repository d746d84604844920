"""Guru-RL-92k as it is published: every file, both variants."""

import json

import guru_rows
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlkit.data import rows
from rlkit.data.exporting import reference_response
from rlkit.domains import resolve, sources
from rlkit.errors import UserError
from rlkit.rewards.grading import grade


def folder(path, compressed=False):
    path.mkdir()
    for name in guru_rows.FILES:
        pq.write_table(pa.Table.from_pylist(guru_rows.rows(name, compressed)), path / f"{name}.parquet")
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_every_file_is_read_in_both_variants(tmp_path, compressed):
    guru = folder(tmp_path / "guru", compressed)
    for name, content in guru_rows.FILES.items():
        tasks = list(rows.tasks(guru / f"{name}.parquet"))
        source = sources.parse({"kind": "file", "path": str(guru / f"{name}.parquet")})
        assert source.tasks(range(source.total())) == tasks
        for task, (source, ability, question, truth, info) in zip(tasks, content, strict=True):
            assert (task.data_source, task.ability, task.ground_truth) == (source, ability, truth)
            assert task.prompt == ({"role": "user", "content": question},)
            assert info.items() <= task.extra_info.items()
            assert task.extra_info["qwen3_30b_pass_rate"] == 0.875


def test_both_variants_and_json_give_the_same_tasks(tmp_path):
    for name in guru_rows.FILES:
        plain, squeezed = guru_rows.rows(name), guru_rows.rows(name, compressed=True)
        lines = tmp_path / f"{name}.jsonl"
        lines.write_text("\n".join(json.dumps(r) for r in plain))
        assert (
            [rows.to_task(r) for r in plain] == [rows.to_task(r) for r in squeezed] == list(rows.tasks(lines))
        )


def test_each_source_is_routed_and_its_truth_has_a_right_answer():
    for name in guru_rows.FILES:
        for task in map(rows.to_task, guru_rows.rows(name)):
            assert resolve(task.data_source)
            judged = task.data_source == "stem_web" or task.data_source.startswith("codegen")
            if not judged:
                answer = reference_response(task)
                assert answer is not None
                assert grade(task.data_source, answer, task.ground_truth, task.extra_info).value == 1, name


def test_a_malformed_row_is_named(tmp_path):
    bad = guru_rows.rows("math__combined_54.4k")
    bad[1]["reward_model"] = {"style": "rule"}
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in bad))
    with pytest.raises(UserError, match=r"bad.jsonl, row 1: reward_model has no ground_truth"):
        list(rows.tasks(path))


def test_a_damaged_truth_is_named():
    damaged = guru_rows.row("logic__zebra_puzzle_1.3k", 0, compressed=True)
    damaged["reward_model"]["ground_truth"]["compressed"] = "not base64"
    with pytest.raises(UserError, match="row 3: A compressed ground truth cannot be decoded"):
        rows.to_task(damaged, "row 3")
