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


@pytest.mark.parametrize("form", ["plain", "compressed", "jsonl"])
def test_every_file_is_read_in_both_variants_and_as_json(tmp_path, form):
    for name, content in guru_rows.FILES.items():
        published = guru_rows.rows(name, form == "compressed")
        if form == "jsonl":
            (file := tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, published)))
        else:
            pq.write_table(pa.Table.from_pylist(published), file := tmp_path / f"{name}.parquet")
        tasks = list(rows.tasks(file))
        source = sources.parse({"kind": "file", "path": str(file)})
        assert source.tasks(range(source.total())) == tasks == [rows.to_task(row) for row in published]
        for task, (data_source, ability, question, truth, info) in zip(tasks, content, strict=True):
            assert (task.data_source, task.ability, task.ground_truth) == (data_source, ability, truth)
            assert task.prompt == ({"role": "user", "content": question},)
            assert info.items() <= task.extra_info.items()
            assert task.extra_info["qwen3_30b_pass_rate"] == 0.875


def test_each_source_is_routed_and_its_truth_has_a_right_answer():
    for name in guru_rows.FILES:
        for task in map(rows.to_task, guru_rows.rows(name)):
            assert resolve(task.data_source)
            judged = task.data_source == "stem_web" or task.data_source.startswith("codegen")
            if not judged:
                answer = reference_response(task)
                assert answer is not None
                assert grade(task.data_source, answer, task.ground_truth, task.extra_info).value == 1, name


def test_a_damaged_truth_is_named():
    damaged = guru_rows.row("logic__zebra_puzzle_1.3k", 0, compressed=True)
    damaged["reward_model"]["ground_truth"]["compressed"] = "not base64"
    with pytest.raises(UserError, match="row 3: A compressed ground truth cannot be decoded"):
        rows.to_task(damaged, "row 3")
