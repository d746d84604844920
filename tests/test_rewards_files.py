"""`rlkit score`: a file of answers, in order; `rlkit audit`: no wrong verdict here, and planted ones are found."""

import json

import pytest
from sandbox_here import needs_packages
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards import audit, score_file
from rlkit.rewards.files import cases

CONFIG = RewardConfig(num_workers=2)
GOOD = {"data_source": "math__x", "response": r"\boxed{7}", "ground_truth": "7"}


def test_each_row_is_scored_in_order_with_its_reason_if_it_cannot_be(tmp_path):
    changes = ({}, {"data_source": "nowhere"}, {"response": 7}, {"response": "8"}, {})
    rows = [json.dumps({**GOOD, **change}) for change in changes]
    (path := tmp_path / "answers.jsonl").write_text("\n\n".join(rows))
    result = CliRunner().invoke(app, ["score", str(path), "--workers", "2"])
    assert result.exit_code == 0 and "2 of 5 answers are right, 2 could not be graded" in result.output
    scored = [json.loads(line) for line in (tmp_path / "answers.scored.jsonl").read_text().splitlines()]
    assert [row["correct"] for row in scored] == [True, None, None, False, True]
    assert "nowhere" in scored[1]["error"] and scored[1]["value"] is None
    assert set(scored[0]) == {"value", "correct", "parts", "error", "scorer"}


NO_ROWS = {
    b'{"data_source": "math__x", "response": "\xff", "ground_truth": "7"}': "no JSON",
    b"[" * 100_000: "no JSON",
    b"[1]": "an object is missing",
    b'{"data_source": "math__x", "response": "7"}': "ground_truth is missing",
}


@pytest.mark.parametrize(("line", "why"), NO_ROWS.items(), ids=range(4))
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


def test_the_cases_have_right_and_wrong_answers_of_every_domain_cheats_and_hangs():
    found = cases()
    domains = {case["domain"] for case in found}
    assert domains >= {"math", "code", "logic", "arc", "simulation", "table", "stem", "reasoning_gym"}
    assert all({c["correct"] for c in found if c["domain"] == d} == {True, False} for d in domains)
    assert {case["kind"] for case in found} == {"answer", "cheat", "hang"}
    assert all(0 < len(case["note"]) < 47 for case in found if case["kind"] != "answer")


def test_no_verdict_is_wrong_and_each_attack_is_listed_with_its_result(tmp_path):
    needs_packages()
    result = audit(RewardConfig(num_workers=2, timeout=3), out=tmp_path / "audit.json")
    stored = json.loads((tmp_path / "audit.json").read_text())
    wrong = [(c["ground_truth"], c["response"], c["parts"], c["error"]) for c in result.failures]
    assert not wrong and stored["scorer"].startswith("strict/")
    assert len(stored["cases"]) == len(result.cases) == len(cases())
    table = result.table()
    attacks = [case for case in result.cases if case["kind"] != "answer"]
    assert sum(" refused " in line for line in table.splitlines()) == len(attacks) and "ACCEPTED" not in table
    assert "verdicts are wrong" in table and f"sandbox {result.sandbox}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_grader_that_accepts_everything_is_found_out(tmp_path):
    lax = tmp_path / "lax.py"
    lax.write_text("def score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n")
    result = audit(RewardConfig(num_workers=1, custom_reward_function=f"{lax}:score"))
    assert len(result.failures) == sum(not case["correct"] for case in cases())
    assert "ACCEPTED" in result.table()


def test_the_doctor_says_which_sandbox_is_active():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0 and "\nsandbox: " in result.output
