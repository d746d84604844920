"""The audit finds no wrong verdict here, and it does find planted ones."""

import json

import pytest
from sandbox_here import needs_packages
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.rewards import SCORER_VERSION, audit
from rlkit.rewards.files import cases


def test_the_cases_have_right_and_wrong_answers_of_every_domain_cheats_and_hangs():
    found = cases()
    domains = {case["domain"] for case in found}
    assert domains == {
        "math",
        "code",
        "logic",
        "arc",
        "simulation",
        "table",
        "stem",
        "reasoning_gym",
        "instructions",
    }
    assert all({c["correct"] for c in found if c["domain"] == d} == {True, False} for d in domains)
    assert {case["kind"] for case in found} == {"answer", "cheat", "hang"}
    assert all(0 < len(case["note"]) < 47 for case in found if case["kind"] != "answer")


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """One audit with a data file in which one truth is planted that does not answer its question."""
    folder = tmp_path_factory.mktemp("audit")
    rows = []
    for i, truth in enumerate(["1", "2", "2,"]):
        rows.append(
            {
                "data_source": "math__x",
                "prompt": [{"role": "user", "content": f"q{i} Put it in \\boxed{{}}."}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": truth},
                "extra_info": {"index": i, "solution": f"\\boxed{{{i + 1}}}"},
            }
        )
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RewardConfig(num_workers=2, timeout=5)
    return audit(config, data=path, out=folder / "audit.json"), json.loads(
        (folder / "audit.json").read_text()
    )


def test_no_verdict_is_wrong_and_each_attack_is_listed_with_its_result(audited):
    needs_packages()
    result, stored = audited
    own = [case for case in result.cases if "(" not in case["domain"]]
    assert len(own) == len(cases())
    wrong = [case for case in result.failures if "(" not in case["domain"]]
    assert not wrong, [(c["ground_truth"], c["response"], c["parts"], c["error"]) for c in wrong]
    assert stored["rate"] == result.rate and stored["scorer"] == f"strict/{SCORER_VERSION}"
    table = result.table()
    attacks = [case for case in own if case["kind"] != "answer"]
    assert sum(" refused " in line for line in table.splitlines()) == len(attacks) and "ACCEPTED" not in table
    assert "of the verdicts are wrong" in table and f"sandbox {result.sandbox}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_data_file_is_checked_against_itself(audited):
    own = [case for case in audited[0].cases if case["domain"] == "math__x (own)"]
    assert [case["verdict"] for case in own] == [True, True, False]  # the third's solution is 3, its truth 2
    assert sum(case["domain"] == "math__x (other)" for case in audited[0].cases) == 3


def test_a_grader_that_accepts_everything_is_found_out(tmp_path):
    lax = tmp_path / "lax.py"
    lax.write_text("def score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n")
    result = audit(RewardConfig(num_workers=1, custom_reward_function=f"{lax}:score"))
    assert len(result.failures) == sum(not case["correct"] for case in cases())
    assert "ACCEPTED" in result.table()


def test_the_doctor_says_which_sandbox_is_active():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0 and "\nsandbox: " in result.output


@pytest.mark.parametrize("options", [["--scorer", "lenient"]])
def test_bad_options_are_refused(options):
    result = CliRunner().invoke(app, ["audit", *options])
    assert result.exit_code != 0
