"""Answers whose truth was decided by hand (tests/cases/answers.jsonl: one `rlkit score` row a line, and `correct`)."""

import json
from pathlib import Path

import pytest
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.rewards import Router

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "cases/answers.jsonl").read_text().splitlines()
]


def domain(case: dict) -> str:
    return case["data_source"].partition("_")[0]


@pytest.fixture(scope="module")
def rewards():
    rows = [(c["data_source"], c["response"], c["ground_truth"], c["extra_info"]) for c in CASES]
    with Router(RewardConfig(num_workers=2, timeout=5.0)) as router:
        return router.grade_rows(rows)


@pytest.mark.parametrize("name", sorted({domain(c) for c in CASES}))
def test_every_answer_is_graded_as_it_should_be(name, rewards):
    if name == "codegen":
        needs_packages()
    pairs = [(c, r) for c, r in zip(CASES, rewards, strict=True) if domain(c) == name]
    wrong = [(c["ground_truth"], c["response"], r) for c, r in pairs if r.correct is not c["correct"]]
    assert not wrong
    assert {c["correct"] for c, _ in pairs} == {True, False}
