"""`scorer: guru` computes what Reasoning360 computes, known defects included; `strict` does not.

Each row is a defect that was seen by running the original: (source, response, truth, guru's value,
strict's correct).
"""

import pytest

from rlkit.config import RewardConfig
from rlkit.rewards import Router

DEFECTS = {
    "a factor of 100 passes as a percentage": ("math__x", r"\boxed{5}", "500", 1.0, False),
    "and the other way": ("math__x", r"\boxed{1200}", "12", 1.0, False),
    "sets are compared as text": ("math__x", r"\boxed{\{2,1\}}", r"\{1,2\}", 0.0, True),
    "units are deleted": ("math__x", r"\boxed{5 \text{ minutes}}", r"5 \text{ hours}", 1.0, False),
    "no box, the whole text": ("math__x", "204", "204", 1.0, True),
    "a sentence is no answer": ("math__x", "The answer is 204", "204", 0.0, True),
    "aime wants an Answer line and punishes": ("aime2024", r"\boxed{204}", "204", -1.0, True),
    "exit status 0 is a pass": (
        "codegen__x",
        "```python\nimport sys\ndef f(): return 1\nsys.exit(0)\n```",
        {"functional": "assert f() == 2"},
        1.0,
        False,
    ),
    "the fence must close on its own line": (
        "codegen__x",
        "```python\ndef f(): return 2```",
        {"functional": "assert f() == 2"},
        0.0,
        True,
    ),
    "all fences are joined": (
        "codegen__x",
        "```python\nprint(1)\n```\n```python\nprint(2)\n```",
        {"inputs": [""], "outputs": ["2"]},
        0.0,
        True,
    ),
    "an unreadable grid is [[0]]": ("simulation__arcagi1", "no idea", [[0]], 1.0, False),
    "floats are cut": ("simulation__arcagi1", "<answer>[[1.9]]</answer>", [[1]], 1.0, False),
    "half the cells pay half": (
        "logic__zebra_puzzle_dataset",
        "<answer>{'header': [], 'rows': [['1', 'a'], ['2', 'a']]}</answer>",
        {"header": ["House", "Drink"], "rows": [["1", "tea"], ["2", "milk"]]},
        0.5,
        False,
    ),
    "an answer on several lines is lost": (
        "logic__ordering_puzzle_dataset",
        "<answer>['a',\n'b']</answer>",
        ["a", "b"],
        0.0,
        True,
    ),
    "a capital in the truth never matches": (
        "logic__ordering_puzzle_dataset",
        "<answer>['Ann', 'bob']</answer>",
        ["Ann", "bob"],
        0.0,
        True,
    ),
    "names with hyphens are split": (
        "logic__ordering_puzzle_dataset",
        "<answer>['blue-jay', 'owl']</answer>",
        ["blue-jay", "owl"],
        0.0,
        True,
    ),
    "a node with digits is no node": (
        "logic__graph_logical_dataset",
        "<answer>n12</answer>",
        "n12",
        0.0,
        True,
    ),
    "the first fence counts": (
        "simulation__codeio",
        '```json\n{"output": 1}\n```\n```json\n{"output": 2}\n```',
        '"output": 2',
        0.0,
        True,
    ),
    "1 is true": ("simulation__codeio", '```json\n{"output": 1}\n```', '"output": true', 1.0, False),
    "lists are sorted as text": ("table__hitab", r"\boxed{$5|10}", "5|10", 0.0, True),
    "the first letter that occurs counts": ("stem__supergpqa", r"\boxed{CANNOT D}", "A", 1.0, False),
    "no judge is a silent 0": ("stem_web", r"\boxed{water}", "water", 0.0, True),
}


@pytest.fixture(scope="module")
def routers():
    with (
        Router(RewardConfig(num_workers=1, scorer="guru")) as guru,
        Router(RewardConfig(num_workers=1)) as strict,
    ):
        yield guru, strict


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_kept_in_guru_mode_and_mended_in_strict_mode(routers, name):
    source, response, truth, value, correct = DEFECTS[name]
    guru, strict = (router.grade_rows([(source, response, truth, {})])[0] for router in routers)
    assert (guru.value, guru.error) == (value, None)
    assert (strict.correct, strict.error) == (correct, None)


def test_cruxeval_takes_any_statement_in_guru_mode(routers):
    row = ("simulation__cruxeval-o", "```python\npass\n```", {"functional": "def f(x): return x"},
           {"input": "1", "output": "1"})  # fmt: skip
    assert [router.grade_rows([row])[0].correct for router in routers] == [True, False]


def test_guru_mode_executes_no_model_text(routers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Router(RewardConfig(num_workers=1, scorer="guru")) as guru:
        for source, truth in (("math__x", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("table__hitab", "5")):
            answer = r"\boxed{[open('PWNED', 'w')]}"
            assert guru.grade_rows([(source, answer, truth, {})])[0].value == 0.0
    assert not list(tmp_path.iterdir())


def test_a_source_that_reasoning360_does_not_know_is_graded_strictly(routers):
    row = ("logic__path", "c", "c", {})
    assert routers[0].grade_rows([row])[0].correct


def test_a_missing_letter_is_drawn_with_a_chance_of_one_in_ten(routers):
    rows = [("stem__supergpqa", f"I do not know ({i}).", "A", {}) for i in range(500)]
    rewards = routers[0].grade_rows(rows)
    assert 0.05 < sum(r.value for r in rewards) / 500 < 0.16
    assert rewards == routers[0].grade_rows(rows)
    assert not any(r.correct for r in routers[1].grade_rows(rows))
