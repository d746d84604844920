"""`rlkit score`: a file of answers, in order."""

import json

import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards import audit, score_file

CONFIG = RewardConfig(num_workers=2)
GOOD = {"data_source": "math__x", "response": r"\boxed{7}", "ground_truth": "7"}


def test_each_row_is_scored_in_order_with_its_reason_if_it_cannot_be(tmp_path):
    path = tmp_path / "answers.jsonl"
    rows = [
        GOOD,
        {**GOOD, "data_source": "nowhere"},
        {**GOOD, "response": 7},
        {**GOOD, "response": "8"},
        GOOD,
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    assert score_file(path, config=CONFIG) == {
        "rows": 5, "correct": 2, "errors": 2, "out": str(tmp_path / "answers.scored.jsonl"),
    }  # fmt: skip
    scored = [json.loads(line) for line in (tmp_path / "answers.scored.jsonl").read_text().splitlines()]
    assert [row["correct"] for row in scored] == [True, None, None, False, True]
    assert "nowhere" in scored[1]["error"] and scored[1]["value"] is None
    assert set(scored[0]) == {"value", "correct", "parts", "error", "scorer"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"data_source": "math__x", "response": "\xff", "ground_truth": "7"}', "no JSON"),
        (b"nonsense", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "an object is missing"),
        (b'{"data_source": "math__x", "response": "7"}', "ground_truth is missing"),
    ],
)
def test_a_line_that_is_no_row_is_one_sentence(tmp_path, line, why):
    path = tmp_path / "answers.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + line)
    with pytest.raises(UserError, match=f"answers.jsonl, line 2: .*{why}"):
        score_file(path, config=CONFIG)
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_cannot_be_read_or_written_are_said_before_anything_is_graded(tmp_path):
    (path := tmp_path / "a.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "file").write_text("")
    for out in ("file/out.jsonl", "file/more/out.jsonl"):
        with pytest.raises(UserError, match="[Cc]annot write"):
            score_file(path, tmp_path / out, CONFIG)
        with pytest.raises(UserError, match="[Cc]annot write"):
            audit(out=tmp_path / out)
    for out in (path, tmp_path):
        with pytest.raises(UserError, match="the input itself or a folder"):
            score_file(path, out, CONFIG)
    with pytest.raises(UserError, match="no file"):
        score_file(tmp_path / "absent.jsonl")


def test_the_command(tmp_path):
    (path := tmp_path / "a.jsonl").write_text("\n".join([json.dumps(GOOD)] * 2))
    result = CliRunner().invoke(app, ["score", str(path), "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "2 of 2 answers are right, 0 could not be graded" in result.output
