# ruff: noqa: E501 (whole programs as one-line strings)
"""Programs that try to pass their tests without solving them: tests/data/cheats.jsonl, each with tests of each kind."""

import os
from itertools import product

import pytest
from cases import records
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.rewards import Router
from rlkit.sandbox.levels import choose

CHEATS = {case["about"]: case["program"] for case in records("cheats")}
TRUTHS = {case["about"]: case["truth"] for case in records("tests_of_half")}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6, total_timeout=12)) as router:
        yield router


def grade_all(router, pairs, **info):
    """The rewards of (program, truth) pairs, which the workers share."""
    rows = [("codegen__x", f"```python\n{program}\n```", truth, info) for program, truth in pairs]
    return router.grade_rows(rows)


def grade(router, program, truth, **info):
    return grade_all(router, [(program, truth)], **info)[0]


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the fallback needs root")
# How tests compare is the same on every level: the fallback is tried with each kind of process that runs them.
FALLBACK = [("rlimits", truth) for truth in ("equality", "pytest", "calls")]
EVERYWHERE = [("auto", truth) for truth in TRUTHS] + [pytest.param(*case, marks=as_root) for case in FALLBACK]


@pytest.fixture(scope="module")
def level_router(request):
    config = RewardConfig(num_workers=2, timeout=6, total_timeout=12, sandbox=request.param)
    with Router(config) as router:
        yield choose(request.param), router


@pytest.mark.parametrize(("level_router", "truth"), EVERYWHERE, indirect=["level_router"])
def test_no_cheat_passes(level_router, truth):
    level, router = level_router
    if truth == "pytest":
        needs_packages(level)
    names = [n for n in CHEATS if n != "reads the tests' files" or level != "rlimits"]  # those all can read
    rewards = grade_all(router, [(CHEATS[name], TRUTHS[truth]) for name in names])
    rewards = dict(zip(names, rewards, strict=True))
    assert not {n: r for n, r in rewards.items() if r.correct is not False or r.error or "trusted" in r.parts}
    assert grade(router, "def half(x): return x / 2", TRUTHS[truth]).correct  # and the next one is judged


def test_each_test_has_a_limit_of_its_own_and_all_have_a_total():
    slow, inputs = "import time\nx = int(input())\ntime.sleep(0.4)\nprint(2 * x)", [str(i) for i in range(5)]
    stdin = {"inputs": inputs, "outputs": [str(2 * i) for i in range(5)]}
    function = "import time\ndef double(x):\n    time.sleep(0.4)\n    return 2 * x"
    tests = {"functional": "\n".join(f"assert double({i}) == {2 * i}" for i in range(5))}
    calls = {"fn_name": "double", "inputs": inputs, "outputs": stdin["outputs"]}
    rows = [(slow, stdin), (function, tests), (function, calls)]
    forever, asleep = "def double(x):\n    while True: pass", "import time\ndef double(x): time.sleep(99)"
    endless = [*product((forever, asleep), (tests, calls)), ("while True: pass", stdin)]
    iterator = CHEATS["an object that is everything"].replace("next(iter(()))", "s")  # without an end
    endless.append((iterator, TRUTHS["equality"]))
    with Router(RewardConfig(num_workers=4, timeout=1.5, total_timeout=20)) as router:
        assert [reward.correct for reward in grade_all(router, rows)] == [True] * 3
        assert [reward.parts["reason"] for reward in grade_all(router, endless)] == ["time"] * 6
    with Router(RewardConfig(num_workers=3, timeout=5, total_timeout=1)) as router:
        assert [reward.parts["reason"] for reward in grade_all(router, rows)] == ["time"] * 3


def test_an_answer_that_comes_byte_by_byte_is_ended_by_the_sandbox():
    start = "import os, time\ndef half(x):\n    os.write(3, b'{}')\n    while True:\n        os.write(3, b' ')\n        time.sleep({})"
    sent = ("\\0", r"\0\0\0\0\0\1\0\0")  # of a message's length, or all of it
    rows = [(start.format(*given), TRUTHS["calls"]) for given in product(sent, (0.002, 0.4))]
    with Router(RewardConfig(num_workers=4, timeout=1, total_timeout=3)) as router:
        rewards = grade_all(router, rows)
    assert [(reward.correct, reward.error) for reward in rewards] == [(False, None)] * 4
    assert {reward.parts["reason"] for reward in rewards} <= {"time", "exit: the program sends no message"}


def test_a_message_that_would_take_long_to_read_is_none(router):
    """A list of a million numbers may be passed to a program, and come back."""
    forged = "import os, json\ndef half(x):\n    d = b'[\"value\", [[\"list\", [[1], [2]]], [\"list\", []]' + b', [\"list\", []]' * 1_200_000 + b']]'\n    os.write(3, len(d).to_bytes(8, 'big'))\n    while d: d = d[os.write(3, d):]\n    return 9"
    reward = grade(router, forged, TRUTHS["calls"])
    assert (reward.correct, reward.parts["reason"]) == (False, "exit: the program sends no message")
    honest = (
        "def half(x):\n    return [n / 2 if n % 2 else n // 2 for n in x] if isinstance(x, list) else x / 2"
    )
    long = {"functional": "x = list(range(1_000_000))\nassert half(x)[8:10] == [4, 4.5]"}
    assert grade(router, honest, long).correct
