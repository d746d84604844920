"""No response makes an error, takes long or kills a worker: degenerate texts for every domain."""

import random

import pytest
from test_rewards_attacks import GYM, INFO, TRUTHS

from rlkit.config import RewardConfig
from rlkit.rewards import Router

SOURCES = ["math__x", "table__x", "stem_web", "stem__supergpqa", "logic__zebra_x", "logic__ordering_x",
           "logic__graph_x", "simulation__arcagi1", "simulation__codeio", "simulation__cruxeval-o",
           "simulation__string_trace", "ifeval", "codegen__x"]  # fmt: skip
TRUTH = {"math__x": r"\frac{1}{2}", "table__x": "3|4", "stem_web": "3e8 m/s", "logic__graph_x": "qx7"}
PIECES = [
    "```", "```python\n", "~~~", "<answer>", "</answer>", "<think>", "</think>", r"\boxed{", "}", "{", "[",
    "]", "(", ")", "answer is ", "Answer: ", "####", " ", "\n", "\t", "\r", "\x00", "\u2028", "\ud800", "😀",
    "٣", "1e999", "-1e999", "nan", "∞", "9" * 5000, "10**5000", "1/", "1/0", "x^", "^", "_", r"\frac",
    r"\sqrt{", r"\text{", r"\text{ dBm/Hz}", r"\lbrack", r"\cup", "|", ",", ", ", ";", "->", "=", "<", ">",
    "'", '"', "\\", "$", "%", ":", "#", "a", "ab ", "0", "1", "-", "+", "*", "!", "{'a': ", '{"output": ',
    "[[", "1,2],", "def f(x):\n", "    return {10**5000: 1}\n", "assert f(1) == ", "None", "True",
]  # fmt: skip


def response(rng: random.Random) -> str:
    """A few pieces, of which one is repeated up to 30,000 characters long."""
    texts = [rng.choice(PIECES) for _ in range(rng.randint(0, 6))]
    if rng.random() < 0.4:
        piece = rng.choice(PIECES)
        texts.insert(rng.randint(0, len(texts)), piece * (rng.choice([10, 1000, 30_000]) // len(piece) + 1))
    if rng.random() < 0.5:
        texts = [rng.choice([r"\boxed{", "<answer>", "```python\n", "Answer: "]), *texts]
        texts.append({r"\boxed{": "}", "<answer>": "</answer>", "```python\n": "\n```"}.get(texts[0], ""))
    return "".join(texts).encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def graded(source: str, count: int, seed: int):
    """(response, reward, seconds) of `count` responses to one problem of a data_source."""
    rng = random.Random(f"{source} {seed}")
    info = INFO.get(source, {})
    if source == "ifeval":
        info, truth = {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"]}, [{}, {}]
    elif source.startswith("reasoning_gym"):
        info = {"entry": {"answer": "7", "metadata": {"source_dataset": "countdown", **GYM["countdown"]}}}
        truth = "7"
    else:
        truth = TRUTH.get(source, TRUTHS.get(source, "bca"))
    rows = [(source, response(rng), truth, info) for _ in range(count)]
    with Router(RewardConfig(num_workers=2, timeout=20)) as router:
        return [(row[1], *outcome) for row, outcome in zip(rows, router.submit(rows), strict=True)]


@pytest.mark.parametrize(
    "count", [60, pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("source", [*SOURCES, "reasoning_gym__countdown"])
def test_no_response_makes_an_error_or_kills_a_worker_and_many_are_graded_in_half_a_second(source, count):
    found = graded(source, count, seed=int(count > 60))
    forbidden = {"killed", "exception"} if count > 60 else {"killed"}
    assert [(text[:200], r) for text, r, _ in found if r.error or forbidden & set(r.parts)] == []
    # Not in a sandbox.
    if count > 60 and not source.startswith(("codegen", "simulation__crux", "reasoning_gym")):
        assert [(text[:200], s) for text, _, s in found if s > 0.5] == []
