"""The audit finds no wrong verdict here, and it does find planted ones."""

import json

from sandbox_here import needs_packages
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.rewards import audit
from rlkit.rewards.files import cases


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
    assert len(result.cases) == len(cases())
    wrong = [(c["ground_truth"], c["response"], c["parts"], c["error"]) for c in result.failures]
    assert not wrong
    assert stored["scorer"].startswith("strict/") and len(stored["cases"]) == len(result.cases)
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
