"""Guru-RL-92k as it is published: every file, both variants. All content of tests/data/guru.jsonl is made up."""

import base64
import gzip
import json
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import records

from rlkit.data import rows
from rlkit.data.exporting import reference_response
from rlkit.domains import resolve, sources
from rlkit.errors import UserError
from rlkit.rewards.grading import grade

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


def test_a_damaged_truth_is_named():
    (damaged,) = published("logic__zebra_puzzle_1.3k", compressed=True)
    damaged["reward_model"]["ground_truth"]["compressed"] = "not base64"
    with pytest.raises(UserError, match="row 3: A compressed ground truth cannot be decoded"):
        rows.to_task(damaged, "row 3")
