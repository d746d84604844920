"""`rlkit score`: a file of answers, in order, resumable."""

import json

import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards import audit, score_file

CONFIG = RewardConfig(num_workers=2)


def write(path, count=600):
    rows = [
        {"data_source": "math__x", "response": str(i), "ground_truth": str(i - i % 2)} for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_is_scored_in_order_with_its_reason_if_it_cannot_be(tmp_path):
    path = tmp_path / "answers.jsonl"
    good = json.dumps({"data_source": "math__x", "response": r"\boxed{7}", "ground_truth": "7"}).encode()
    lines = [
        good,
        b'{"data_source": "math__x", "response": "\xff", "ground_truth": "7"}',
        b"nonsense",
        b"[1]",
        b'{"data_source": "math__x", "response": "7"}',
        b'{"data_source": "nowhere", "response": "7", "ground_truth": "7"}',
        good,
    ]
    path.write_bytes(b"\n".join(lines))
    counts = score_file(path, config=CONFIG, progress=False)
    rows = read(tmp_path / "answers.scored.jsonl")
    assert [row["correct"] for row in rows] == [True, None, None, None, None, None, True]
    for row, why in zip(rows[1:6], ("utf-8", "JSON", "list", "'ground_truth'", "nowhere"), strict=True):
        assert why in row["error"] and row["value"] is None
    assert {"value", "correct", "parts", "error", "seconds"} <= set(rows[0])
    assert (counts["rows"], counts["correct"], counts["errors"]) == (7, 2, 5)


def test_an_interrupted_call_goes_on_behind_the_last_whole_line(tmp_path):
    path = write(tmp_path / "a.jsonl")
    whole = tmp_path / "whole.jsonl"
    score_file(path, whole, CONFIG, progress=False)
    lines = whole.read_text().splitlines(keepends=True)
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(lines[:300]) + lines[300][:25])
    counts = score_file(path, torn, CONFIG, progress=False)
    assert torn.read_text().splitlines(keepends=True)[:300] == lines[:300]
    keys = ("id", "correct", "value", "error")
    assert [[r[k] for k in keys] for r in read(torn)] == [[r[k] for k in keys] for r in read(whole)]
    assert (counts["rows"], counts["correct"]) == (600, 300)
    before = torn.read_bytes()
    score_file(path, torn, CONFIG, progress=False)  # nothing is left to do
    assert torn.read_bytes() == before


def test_scores_of_other_rows_or_of_another_scorer_are_not_continued(tmp_path):
    path, out = write(tmp_path / "a.jsonl", 4), tmp_path / "out.jsonl"
    score_file(path, out, CONFIG, progress=False)
    with pytest.raises(UserError, match="other rows"):
        score_file(path, out, RewardConfig(num_workers=1, custom_reward_function="math:fmod"), progress=False)
    path.write_text(path.read_text().replace('"response": "0"', '"response": "9"'))
    with pytest.raises(UserError, match="other rows"):
        score_file(path, out, CONFIG, progress=False)
    with pytest.raises(UserError, match="input itself"):
        score_file(path, path, CONFIG)
    with pytest.raises(UserError, match="no file"):
        score_file(tmp_path / "absent.jsonl")


def test_an_output_that_cannot_be_written_is_said_in_a_sentence_before_anything_is_graded(tmp_path):
    path = write(tmp_path / "a.jsonl", 4)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for out in ("file/out.jsonl", "folder", "/proc/out.jsonl"):
        with pytest.raises(UserError, match="cannot be written .*--out"):
            score_file(path, tmp_path / out, CONFIG, progress=False)
        with pytest.raises(UserError, match="cannot be written .*--out"):
            audit(out=tmp_path / out)


@pytest.mark.parametrize("text", ["notes\n", "[1]\n", '{"id": 1}\n', '{"value": 1.0}\n{"to'])
def test_a_file_of_something_else_is_not_written_over(tmp_path, text):
    path, out = write(tmp_path / "a.jsonl", 4), tmp_path / "out.jsonl"
    out.write_text(text)
    with pytest.raises(UserError, match="something else"):
        score_file(path, out, CONFIG, progress=False)
    assert out.read_text() == text


def test_the_command(tmp_path):
    path = write(tmp_path / "a.jsonl", 4)
    result = CliRunner().invoke(app, ["score", str(path), "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "2 of 4 answers are right, 0 could not be graded" in result.output
    assert len(read(tmp_path / "a.scored.jsonl")) == 4
