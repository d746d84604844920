"""No response makes an error, takes long or kills a worker: degenerate texts for every domain."""

import random

import pytest
from cases import records
from test_domains_universal import ATOMS, SCORERS
from test_rewards_attacks import GYM, INFO, TRUTHS

from rlkit.config import RewardConfig
from rlkit.rewards import Router

PIECES = [*ATOMS, *(case["text"] for case in records("odd_pieces")), "9" * 5000]
IFEVAL = {
    "detectable_format:title": {}, "detectable_format:json_format": {}, "change_case:english_lowercase": {},
    "length_constraints:number_sentences": {"num_sentences": 3, "relation": "at least"}, "punctuation:no_comma": {},
    "detectable_format:number_bullet_lists": {"num_bullets": 3}, "language:response_language": {"language": "de"},
    "length_constraints:nth_paragraph_first_word": {"num_paragraphs": 3, "nth_paragraph": 1, "first_word": "x"},
    "detectable_format:number_highlighted_sections": {"num_highlights": 2},
}  # fmt: skip
COUNTDOWN = {"answer": "7", "metadata": {"source_dataset": "countdown", **GYM["countdown"]}}
IN_SANDBOX = ("simulation__codeio", "simulation__cruxeval-o", "codegen__x")
TASKS = {name: (truths[0], {}) for name, (_, truths, _) in SCORERS.items()} | {
    "math__half": (r"\frac{1}{2}", {}),
    "ifeval": (list(IFEVAL.values()), {"instruction_id_list": list(IFEVAL)}),
    "reasoning_gym__countdown": ("7", {"entry": COUNTDOWN}),
    "simulation__string_trace": ("bca", {}),
    **{name: (TRUTHS[name], INFO.get(name, {})) for name in IN_SANDBOX},
}  # fmt: skip


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
