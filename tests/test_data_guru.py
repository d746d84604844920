"""Guru import: every file, both variants, counts, and only what changed is converted again."""

import json

import guru_rows
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlkit.data import rows
from rlkit.data.guru import domain, import_guru
from rlkit.data.reference import reference_response
from rlkit.domains import resolve
from rlkit.errors import UserError
from rlkit.rewards.grading import grade


def folder(path, compressed=False):
    path.mkdir()
    for name in guru_rows.FILES:
        pq.write_table(pa.Table.from_pylist(guru_rows.rows(name, compressed)), path / f"{name}.parquet")
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_every_file_is_read_in_both_variants(tmp_path, compressed):
    done = import_guru([folder(tmp_path / "guru", compressed)], tmp_path / "out", progress=False)
    assert len(done) == len(guru_rows.FILES) == 15
    for name, content in guru_rows.FILES.items():
        tasks = list(rows.tasks(tmp_path / "out" / f"{name}.parquet"))
        for task, (source, ability, question, truth, info) in zip(tasks, content, strict=True):
            assert (task.data_source, task.ability, task.ground_truth) == (source, ability, truth)
            assert task.prompt == ({"role": "user", "content": question},)
            assert info.items() <= task.extra_info.items()
            assert task.extra_info["qwen3_30b_pass_rate"] == 0.875
    schemas = {pq.read_schema(p) for p in (tmp_path / "out").glob("*.parquet")}
    assert len(schemas) == 1, "all domains concatenate"


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


def test_domains_are_guru_s_and_rows_are_counted(tmp_path):
    done = import_guru([folder(tmp_path / "guru")], tmp_path / "out", progress=False)
    assert done["table__hitab_4.3k.parquet"] == {"table__hitab": 1}
    assert sum(sum(counts.values()) for counts in done.values()) == 16
    assert domain("simulation__barc") == "logic" and domain("stem_web") == "stem" and domain("x") == "other"


def test_a_malformed_row_is_named_and_leaves_no_file(tmp_path):
    bad = guru_rows.rows("math__combined_54.4k")
    bad[1]["reward_model"] = {"style": "rule"}
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in bad))
    with pytest.raises(UserError, match=r"bad.jsonl, row 1: reward_model has no ground_truth"):
        import_guru([path], tmp_path / "out", progress=False)
    assert list((tmp_path / "out").iterdir()) == []


def test_inputs_that_cannot_be_imported(tmp_path, monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    for inputs, sentence in (
        (["hub"], "Cannot download LLM360/guru-RL-92k"),
        ([tmp_path / "nowhere"], "no file or folder"),
        ([tmp_path], "holds no .parquet"),
    ):
        with pytest.raises(UserError, match=sentence):
            import_guru(inputs, tmp_path / "out")
    damaged = guru_rows.row("logic__zebra_puzzle_1.3k", 0, compressed=True)
    damaged["reward_model"]["ground_truth"]["compressed"] = "not base64"
    with pytest.raises(UserError, match="row 3: A compressed ground truth cannot be decoded"):
        rows.to_task(damaged, "row 3")
