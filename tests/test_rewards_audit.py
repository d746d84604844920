"""The audit finds no wrong verdict here, and it does find planted ones."""

import json

import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RewardConfig
from rlkit.rewards import SCORER_VERSION
from rlkit.rewards.audit import CONTEXTS, audit, battery


def test_the_battery_has_right_and_wrong_answers_of_every_domain_cheats_and_hangs():
    cases = battery()
    domains = {case.domain for case in cases}
    tasks = {"math", "code", "logic", "arc", "simulation", "table", "stem", "reasoning_gym"}
    assert domains == tasks | {"instructions"}
    assert all({c.right for c in cases if c.domain == d} == {True, False} for d in domains)
    assert {case.kind for case in cases} == {"answer", "cheat", "hang"}


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
    config = RewardConfig(num_workers=2, timeout=1)
    return audit(config, data=path, out=folder / "audit.json"), json.loads(
        (folder / "audit.json").read_text()
    )


def test_no_verdict_of_the_strict_scorer_is_wrong_in_any_call_context(audited):
    result, stored = audited
    assert [f for f in result.failures if f["context"] != "data"] == []
    assert sum(line.cases for line in result.lines if "(" not in line.domain) == len(CONTEXTS) * len(
        battery()
    )
    assert stored["rate"] == result.rate and stored["scorer"] == f"strict/{SCORER_VERSION}"
    assert "of the verdicts are wrong" in result.table()


def test_a_data_file_is_checked_against_itself(audited):
    lines = {line.domain: line for line in audited[0].lines}
    assert lines["math__x (own)"].false_negatives == 1  # the third's solution is 3, its truth 2
    assert lines["math__x (other)"].cases == 3


def test_a_grader_that_accepts_everything_is_found_out(tmp_path):
    lax = tmp_path / "lax.py"
    lax.write_text("def score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n")
    result = audit(RewardConfig(num_workers=1, custom_reward_function=f"{lax}:score"))
    wrong = sum(not case.right for case in battery())
    assert sum(line.false_positives for line in result.lines) == 3 * wrong == len(result.failures)


def test_the_doctor_says_which_sandbox_is_active():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0 and "\nsandbox: " in result.output


@pytest.mark.parametrize("options", [["--scorer", "lenient"]])
def test_bad_options_are_refused(options):
    result = CliRunner().invoke(app, ["audit", *options])
    assert result.exit_code != 0
