"""Attacks on every scorer: none runs what a response says, is right for two truths, errs, takes long or dies.

Add a row to SCORERS: a data_source, how an answer is marked, truths of which no two have the same value (none is
another's percentage, multiple of a thousand or neighbour within 0.1 %), and how one is written.
"""

import json
import random
import tempfile
from itertools import product
from pathlib import Path

import pytest
from cases import records

from rlkit.config import RewardConfig
from rlkit.domains import resolve, scorers
from rlkit.rewards import Router
from rlkit.rewards.grading import grade

ATTACKED = {case["source"]: (case["truth"], case["info"]) for case in records("attacked")}
WAYS = (r"\boxed{%s}", "<answer>%s</answer>", "```python\n%s\n```", "Answer: %s", "%s")


def rows(mark):
    """Every registered scorer with every injection, in the places where answers stand.

    Python, sympy, format strings, pickles and YAML tags that would write the environment to a file."""
    named = [*(name.replace("*", "x") for name in scorers), *ATTACKED]
    each = {name if name.startswith("reasoning_gym__") else resolve(name): name for name in named}
    texts = [case["text"].replace("MARK_FILE", str(mark)) for case in records("injections")]
    for source in each.values():
        ways = WAYS[2:3] if source == "codegen__x" else WAYS[1:2] if "reasoning_gym" in source else WAYS
        truth, info = ATTACKED.get(source, ("42", None))
        yield from ((source, way % text, truth, info) for text, way in product(texts, ways))


def test_no_scorer_runs_what_a_response_says(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    with tempfile.TemporaryDirectory() as folder, Router(RewardConfig(num_workers=2)) as router:
        honest = [("math__x", r"\boxed{3}", "4", None), ("math__x", r"\boxed{4}", "4", None)]
        attacks = list(rows(Path(folder, "mark")))
        rewards = router.grade_rows(attacks)
        assert [a[:2] for a, r in zip(attacks, rewards, strict=True) if r.correct] == []
        assert [r.correct for r in router.grade_rows(honest * 20)] == [False, True] * 20
        assert not list(Path(folder).iterdir())


def test_no_verdict_depends_on_the_units_that_were_read_before():
    """pint adds each unit with a prefix to its own, and would then take that for one to be prefixed."""
    prefixed = [("math__x", rf"\\boxed{{5 \\text{{ {unit}}}}}", "5 kg", None) for unit in ("millimeter", "centim")]
    twice = [
        ("math__x", r"\boxed{5 \text{ m}}", r"5 \text{ kilomillimeter}", None),
        ("stem__x", r"\boxed{5 \text{ decamillimeter}}", r"5 \text{ cm}", None),
    ]
    with Router(RewardConfig(num_workers=1)) as router:
        before, *_, after = (router.grade_rows(rows) for rows in (twice, prefixed, twice))
    assert [r.correct for r in (*before, *after)] == [False] * 4


def test_the_scorers_of_reasoning_gym_that_evaluate_are_all_attacked():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    found = set()
    for path in Path(reasoning_gym.__file__).parent.rglob("*.py"):
        text = path.read_text()
        scoring = text.partition("def score_answer")[2].partition("\nclass ")[0]
        if "eval(" in scoring.replace('eval(entry["answer"])', "") or "parse_expr(" in scoring:
            found.add(path.stem)
    # Evaluate only what the item holds.
    assert found - {"bitwise_arithmetic", "propositional_logic"} <= {
        name.removeprefix("reasoning_gym__") for name in ATTACKED
    }


RNG = random.Random(5)
NUMBERS = [str(n) for n in (0, 1, -1, 7, *range(1001, 1009))] + [f"0.{n}37" for n in range(11, 17)]
APART = {}  # of which no two have the same value
for case in records("truths_apart"):
    APART.setdefault(case["source"], []).append(case["truth"])
PRIMES = [n for n in range(11, 1300) if all(n % k for k in range(2, 37) if k < n)]
FIGURES = [
    *(str(n) for n in PRIMES[:60]),
    *(f"{n}.{n % 9 + 1}" for n in PRIMES[60:120]),
    *(f"-{n}" for n in PRIMES[120:140]),
    *(f"{n / 1000:.4f}" for n in PRIMES[140:160]),
    *(f"{n}.{n % 7 + 1}%" for n in PRIMES[160:180]),
]
NAMES = [a + b for a in "abcdefghij" for b in "klmnopqrstuvwxyzabcd"]
ORDERS = [RNG.sample(NAMES, 3 + k % 3) for k in range(80)]
GRIDS = [[[RNG.randrange(10) for _ in range(2 + k % 3)] for _ in range(3 + k % 4)] for k in range(200)]
TABLES = [
    {"header": ["House", "Pet"], "rows": [[str(i + 1), p] for i, p in enumerate(RNG.sample(NAMES, 3))]}
    for _ in range(80)
]
BOX, TAG = r"\boxed{%s}", "<answer>%s</answer>"
SCORERS = {
    "math__x": (BOX, NUMBERS + APART["math__x"], str),
    "stem_web": (BOX, NUMBERS[4:] + APART["stem_web"], str),
    "stem__supergpqa": (BOX, list("ABCDEFGHIJ"), str),
    "table__hitab": (BOX, FIGURES + APART["table__hitab"], str),
    "logic__ordering_puzzle_dataset": (TAG, ORDERS, ", ".join),
    "logic__graph_logical_dataset": (TAG, NAMES, str),
    "simulation__arcagi1": (TAG, GRIDS, json.dumps),
    "logic__zebra_puzzle_dataset": (TAG, TABLES, json.dumps),
}
ATOMS, ODD = ([case["text"] for case in records("odd_answers") if case["kind"] == kind] for kind in ("atom", "odd"))
ODD += ["9" * 90, "9" * 5000, "[0x" + "f" * 5000 + "]"]


def right(name: str, answer: str) -> list:
    """The truths that an answer is right for."""
    form, truths, _ = SCORERS[name]
    rewards = [grade(name, form.replace("%s", answer), truth, {}) for truth in truths]
    assert not any(r.error or "exception" in r.parts for r in rewards), answer
    return [truth for truth, reward in zip(truths, rewards, strict=True) if reward.correct]


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow(reason="each answer, for minutes"))])
@pytest.mark.parametrize("name", SCORERS)
def test_no_answer_is_right_for_two_truths(name, every):
    _, truths, text = SCORERS[name]
    spelled = list(map(text, truths))
    assert len(set(spelled)) == len(spelled)
    rng = random.Random(5)
    joined = ["".join(rng.choices(ATOMS, k=rng.randint(2, 4))) for _ in range(110)]
    of_sets = name in ("math__x", "stem_web")  # whose readers take long, and a list for a set
    for answer in [*ATOMS, *ODD, *joined][:: every if of_sets else min(every, 3)]:
        assert len(right(name, answer)) <= 1, answer
    if of_sets:
        return
    hedges = [f"{a} or {b}" for a, b in zip(spelled, spelled[7:], strict=False)][:20]
    for answer in [*hedges, "|".join(spelled), *(mark.join(spelled[:9]) for mark in (", ", " ", "\n"))]:
        assert right(name, answer) == [], answer


@pytest.mark.parametrize("name", SCORERS)
def test_every_truth_is_right_for_itself_alone(name):
    _, truths, text = SCORERS[name]
    for truth in truths[:: 1 if len(truths) < 50 else 5]:
        assert right(name, text(truth)) == [truth]


PIECES = [*ATOMS, *(case["text"] for case in records("odd_pieces")), "9" * 5000]
TASKS = {name: (truths[0], {}) for name, (_, truths, _) in SCORERS.items()}
TASKS |= {case["source"]: (case["truth"], case["info"]) for case in records("fuzzed")}


def degenerate(rng: random.Random) -> str:
    """A response of up to 300,000 characters such as small policies emit: few pieces, often one repeated."""
    piece = "".join(rng.choices(PIECES, k=rng.choice([1, 1, 2, 3])))
    body = piece * (rng.choice([1, 60, 2000, 20_000, 100_000]) // len(piece) + 1)
    few = "".join(rng.choices(PIECES, k=rng.choice([6, 300])))
    body = rng.choice([body, rng.choice(PIECES) + body + rng.choice(PIECES), few])
    form = rng.choice(["%s", "<answer>%s</answer>", r"\boxed{%s}", "```python\n%s\n```", "Answer: %s"])
    return form.replace("%s", body)[:300_000].encode("utf-8", "surrogatepass").decode("utf-8", "replace")


@pytest.fixture(scope="module")
def router():
    """Ends an answer that is read for ten seconds: a quadratic reader takes longer for some of these."""
    with Router(RewardConfig(num_workers=2, timeout=10)) as router:
        yield router


MANY = [pytest.mark.slow(reason="thousands of responses for each scorer"), pytest.mark.timeout(3600)]


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=MANY)])
@pytest.mark.parametrize("name", TASKS)
def test_no_response_makes_an_error_takes_long_or_kills_a_worker(router, name, count):
    rng = random.Random(f"{name} {count}")
    # A pattern with a second repetition of the same characters reads these for long.
    hard = [case["text"] for case in records("hard_texts") if case["source"] == name]
    hard = ["".join(piece * times for piece, times in text) for text in hard]
    responses = [*(degenerate(rng) for _ in range(count)), *hard]
    rewards = router.grade_rows([(name, response, *TASKS[name]) for response in responses])
    wrong = zip(responses, rewards, strict=True)
    assert [(text[:200], r) for text, r in wrong if r.error or {"killed", "exception"} & set(r.parts)] == []
