"""Which answers are right: tests/data/verdicts has a file for each domain and in it a case a line.

A case has its data_source, ground truth and extra_info, forms that its answers are written in, and the answers that are
right, that are wrong and that cannot be graded (`failed`, with words of the error). It may name parts of the reward.
"""

import random
from itertools import product

import pytest
import sympy
from cases import DATA, records, table
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.domains import sources
from rlkit.domains.answers import after_thinking, fences, final_answer, given, tagged
from rlkit.domains.grading import Grading
from rlkit.domains.math.tasks import score
from rlkit.domains.reasoning import REFUSED
from rlkit.rewards import Router
from rlkit.rewards.grading import grade

VERDICTS = {"right": True, "wrong": False, "failed": None}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6)) as router:
        yield router


def as_said(reward, correct, case) -> bool:
    """Whether a reward is the one of its case."""
    return (
        reward.correct is correct
        and (reward.error is None) == (correct is not None)
        and case.get("error", "") in (reward.error or "")
        and case.get("reason", "") in str(reward.parts.get("reason"))
        and case.get("parts", {}).items() <= dict(reward.parts).items()
        and not {"exception", "killed", *case.get("without", ())} & set(reward.parts)
    )


@pytest.mark.parametrize("path", sorted(DATA.glob("verdicts/*.jsonl")), ids=lambda path: path.stem)
def test_each_answer_has_the_verdict_of_its_case(router, path):
    if "packages" in path.stem:
        needs_packages()
    asked = [
        (case, form.replace("%s", answer), correct)
        for case in records(f"verdicts/{path.stem}")
        for verdict, correct in VERDICTS.items()
        for form in case.get("forms", ["%s"])
        for answer in case.get(verdict, ())
    ]
    rewards = router.grade_rows([(c["source"], text, c["truth"], c.get("info")) for c, text, _ in asked])
    graded = [(*one, reward) for one, reward in zip(asked, rewards, strict=True)]
    assert [(c["truth"], text, r) for c, text, correct, r in graded if not as_said(r, correct, c)] == []


@pytest.mark.parametrize("name", sorted({case["group"] for case in records("long_texts")}))
def test_a_text_of_great_length_is_settled_in_time(name):
    """A reader that backtracks or evaluates would take hours over one of these."""
    for case in records("long_texts"):
        if case["group"] == name:
            text = "".join(piece * times for piece, times in case["text"])
            reward = grade(case["source"], text, case["truth"], case["info"])
            assert reward.correct is False and not {"exception", "killed"} & set(reward.parts), case


FILLERS = ["\n", " ", "*", "```\n", "answer ", "Answer:\n", "Answer: \\boxed\n", "<think></think>", "x "]


@pytest.mark.parametrize("filler", FILLERS)
def test_an_answer_is_found_behind_a_megabyte_of_anything(filler):
    """The search is linear: with a quadratic one this test runs into the suite's time limit."""
    assert given(filler * ((1 << 20) // len(filler)) + "\nAnswer: 7") == "7"


def test_the_final_answer_is_the_last_one_given_outside_the_reasoning_and_so_are_tags_and_fences():
    found = records("final_answers")
    assert [case for case in found if final_answer(case["response"]) != case["answer"]] == []
    assert given("5" * 500) == ""  # a short response alone is an answer as a whole
    assert after_thinking("<think>a</think>b") == "b"
    assert after_thinking("a</think>b</think>c<think>d") == "c"
    assert tagged("<answer>1</answer> <Answer>\n2</ANSWER>") == "\n2"
    assert tagged("<answer>1") is None and tagged("1</answer>") is None
    text = "x ```py\na = 1\n```\n~~~\nb\n~~~\n  ```Python 3\n  c\n  ```\n```\nd```\n```\nopen"
    assert fences(text) == [("py", "a = 1"), ("", "b"), ("python 3", "c"), ("", "d")]


@pytest.mark.parametrize(*table("partial_credit"))
def test_the_share_that_is_right_is_paid_only_on_request(source, response, truth, info, share):
    both = (Grading(RewardConfig(partial_credit=wanted)) for wanted in (False, True))
    assert [grade(source, response, truth, info, grading).value for grading in both] == [0, share]


def test_an_answer_that_python_warns_of_prints_nothing(capfd):
    row = ("simulation__codeio", "```\n[1if 2else 3, '\\d']\n```", '"output": 1', {})
    with Router(RewardConfig()) as fresh:
        rewards = fresh.grade_rows([row] * 2)
    assert [reward.correct for reward in rewards] == [False] * 2 and "Warning" not in capfd.readouterr().err


def test_every_data_set_of_reasoning_gym_gives_its_own_answer_full_marks(router):
    from reasoning_gym.factory import DATASETS

    names = sorted(set(DATASETS) - set(REFUSED))
    tasks = [sources.parse({"kind": "reasoning_gym", "dataset": name}).task(7) for name in names]
    rewards = router.grade([(task, f"<answer>{task.ground_truth}</answer>") for task in tasks])
    wrong = [(n, r.error) for n, r in zip(names, rewards, strict=True) if not r.correct]
    assert not wrong and len(names) > 80


def graded(answer, truth):
    return score(f"So it is $\\boxed{{{answer}}}$.", truth, {}).correct


def test_one_letter_can_be_negative_without_another():
    forms = ("|%s%s|", "|%s|%s", "%s|%s|")
    for a, b in product("acxyz", "pqrstu"):
        assert not any(graded(form % (a, b), a + b) for form in forms), (a, b)
        assert not graded(f"|{a}|-{b}", f"{a}-{b}"), (a, b)
        assert not any(graded(rf"\max({a},{b})", truth) for truth in (a, b)), (a, b)


def test_random_polynomials_equal_their_expansions_and_not_their_neighbours():
    """An independent check with sympy on expressions that nobody chose."""
    rng = random.Random(5)
    x, y = sympy.symbols("x y")
    for _ in range(40):
        a, b, c = (rng.randint(-9, 9) for _ in range(3))
        factored = f"({a}*x+({b}))*(y+({c}))"
        expanded = str(sympy.expand((a * x + b) * (y + c))).replace("**", "^")
        assert graded(factored, expanded) and not graded(factored, f"{expanded}+1")
