"""Which answers are right: tests/data/verdicts has a file for each domain and in it a case a line.

A case has its data_source, ground truth and extra_info, forms that its answers are written in, and the answers that are
right, that are wrong and that cannot be graded (`failed`, with words of the error). It may name parts of the reward.
"""

import json
from pathlib import Path

import pytest
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.domains import sources
from rlkit.domains.answers import after_thinking, fences, final_answer, given, tagged
from rlkit.domains.grading import Grading
from rlkit.domains.ifeval import CHECKS
from rlkit.domains.reasoning import REFUSED
from rlkit.rewards import Router
from rlkit.rewards.grading import grade

DATA = Path(__file__).parent / "data"
VERDICTS = {"right": True, "wrong": False, "failed": None}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6)) as router:
        yield router


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
        for case in rows(path)
        for verdict, correct in VERDICTS.items()
        for form in case.get("forms", ["%s"])
        for answer in case.get(verdict, ())
    ]
    rewards = router.grade_rows([(c["source"], text, c["truth"], c.get("info")) for c, text, _ in asked])
    graded = [(*one, reward) for one, reward in zip(asked, rewards, strict=True)]
    assert [(c["truth"], text, r) for c, text, correct, r in graded if not as_said(r, correct, c)] == []


ORDER, TABLE = ["a", "b c", "d-e"], {"header": ["House", "Drink"], "rows": [["1", "tea"], ["2", "milk"]]}
ORDERS = [
    "[" * 20_000,
    "a" + " " * 30_000 + "b",
    ("a" + " " * 100) * 400,
    "a" + "\n" * 30_000 + "b",
    "-" * 40_000,
]
ORDERS += ["1. " * 10_000, "a," * 60_000, "['a'" + "," * 9000, "a, b c, d-e" + " " * 60_000, "(" * 40_000]
ORDERS += ["[0x" + "f" * 9000 + "]"]
HEX = "0x" + "f" * 9000
EXPLOSIVE = [
    "9**9**9**9",
    "((10^9)!)!",
    r"\sum_{i=1}^{10^{15}} i",
    "(" * 5000 + "1" + ")" * 5000,
    "1+" * 40000 + "1",
]
EXPLOSIVE += [
    "9" * 2999 + "8",
    r"\frac{" + r"\text{kg}^3 " * 60 + "y}{2}",
    r"7 \text{ " + "hydro" * 12 + "-}",
]
EXPLOSIVE += ["7 " + "b" * 40 + "-", "choice" + " " * 5000 + "?", r"\boxed{" * 20_000 + "7" + "}" * 20_000]
MANY = {"num_sentences": 10**6, "relation": "at least"}
PARAGRAPH = {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"}
INSTRUCTIONS = [
    ("detectable_format:title", {}, "<" * 1_000_000),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "\n" * 1_000_000 + "x"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "\n " * 500_000 + "x"),
    ("detectable_format:json_format", {}, "```" + " " * 1_000_000 + "x"),
    ("detectable_format:json_format", {}, "[" * 1_000_000),
    ("detectable_format:json_format", {}, "1" * 1_000_000),
    ("length_constraints:number_sentences", MANY, "no. " * 250_000),
    ("length_constraints:number_sentences", MANY, "a." + " " * 999_999),
    ("length_constraints:number_sentences", MANY, ".?" * 500_000),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "*" * 1_000_000),
    ("length_constraints:nth_paragraph_first_word", PARAGRAPH, "x" + "\n " * 500_000 + "y"),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[" * 1_000_000),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 10**6}, "*x" * 500_000 + "\n"),
    ("detectable_format:multiple_sections", {"section_spliter": "S", "num_sections": 9}, "S " * 500_000),
    ("keywords:forbidden_words", {"forbidden_words": ["aab"]}, "a" * 1_000_000 + " aab"),
    ("language:response_language", {"language": "de"}, "http://" * 140_000),
    ("language:response_language", {"language": "de"}, "a@b" * 330_000),
    ("change_case:english_lowercase", {}, "\x00\ud800 " * 300_000),
    ("change_case:english_capital", {}, "A" * 1_000_000 + "é"),
]
LONG = {
    "order": [("logic__ordering_x", f"<answer>{text}</answer>", ORDER, {}) for text in ORDERS],
    "box": [("logic__ordering_x", rf"So \boxed{{{text}}}.", ORDER, {}) for text in ORDERS],
    "table": [("logic__zebra_x", f"<answer>{{'header': {HEX}, 'rows': [[{HEX}]]}}</answer>", TABLE, {})],
    "math": [("math__x", rf"\boxed{{{text}}}", "9" * 3000, {}) for text in EXPLOSIVE],
    "units": [("math__x", rf"\boxed{{{text}}}", r"9 \text{ cm}", {}) for text in EXPLOSIVE],
    "choice": [("stem__supergpqa", rf"\boxed{{{text}}}", "A", {}) for text in EXPLOSIVE],
    "ifeval": [
        ("ifeval", text, [given], {"instruction_id_list": [name]}) for name, given, text in INSTRUCTIONS
    ],
}


@pytest.mark.parametrize("name", LONG)
def test_a_text_of_great_length_is_settled_in_time(name):
    """A reader that backtracks or evaluates would take hours over one of these."""
    rewards = [grade(*row) for row in LONG[name]]
    assert [r for r in rewards if r.correct is not False or {"exception", "killed"} & set(r.parts)] == []


FILLERS = ["\n", " ", "*", "```\n", "answer ", "Answer:\n", "Answer: \\boxed\n", "<think></think>", "x "]


@pytest.mark.parametrize("filler", FILLERS)
def test_an_answer_is_found_behind_a_megabyte_of_anything(filler):
    """The search is linear: with a quadratic one this test runs into the suite's time limit."""
    assert given(filler * ((1 << 20) // len(filler)) + "\nAnswer: 7") == "7"


def test_the_final_answer_is_the_last_one_given_outside_the_reasoning():
    cases = rows(DATA / "final_answers.jsonl")
    assert [case for case in cases if final_answer(case["response"]) != case["answer"]] == []
    assert given("5" * 500) == ""  # a short response alone is an answer as a whole
    assert after_thinking("<think>a</think>b") == "b"
    assert after_thinking("a</think>b</think>c<think>d") == "c"


def test_tags_and_fences():
    assert tagged("<answer>1</answer> <Answer>\n2</ANSWER>") == "\n2"
    assert tagged("<answer>1") is None and tagged("1</answer>") is None
    text = "x ```py\na = 1\n```\n~~~\nb\n~~~\n  ```Python 3\n  c\n  ```\n```\nd```\n```\nopen"
    assert fences(text) == [("py", "a = 1"), ("", "b"), ("python 3", "c"), ("", "d")]


def test_the_share_that_is_right_is_paid_only_on_request():
    def paid(*row) -> list:
        return [grade(*row, Grading(RewardConfig(partial_credit=wanted))).value for wanted in (False, True)]

    def table(header, *drinks) -> str:
        rows = [[str(house), drink] for house, drink in enumerate(drinks, 1)]
        return f"<answer>{json.dumps({'header': ['House', header], 'rows': rows})}</answer>"

    assert paid("logic__zebra_x", table("Drink", "tea", "water"), TABLE, {}) == [0, 0.5]
    assert paid("logic__zebra_x", table("Drink", "?", "?"), TABLE, {}) == [0, 0], (
        "the houses' numbers are given"
    )
    assert paid("logic__zebra_x", table("Pet", "tea", "milk"), TABLE, {}) == [0, 0], (
        "a wrong answer paid in full"
    )
    names = {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"]}
    assert paid("ifeval", "Plain.", "[{}, {}]", names) == [0, 0.5]
    tests = {"inputs": ["1", "2", "3", "4"], "outputs": ["1", "0", "3", "4"]}
    assert paid("codegen__x", "```python\nprint(input())\n```", tests, {}) == [0, 0.75]


def test_every_published_instruction_of_ifeval_has_a_check():
    groups = "keywords language length_constraints detectable_content detectable_format combination startend"
    assert len(CHECKS) == 25
    assert {name.partition(":")[0] for name in CHECKS} == {*groups.split(), "change_case", "punctuation"}


def test_cruxeval_reads_no_assertion_of_great_length(router):
    truth = {"functional": "def f(x):\n    return len(x)"}
    for count, right in ((9, True), (200_000, False)):
        claim = f"```python\nassert f('{'a' * count}') == {count}\n```"
        [reward] = router.grade_rows([("simulation__cruxeval-i", claim, truth, {"output": str(count)})])
        assert (reward.correct, reward.error) == (right, None)


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
