# ruff: noqa: E501 (whole programs as one-line strings)
"""Programs: what is read of them, and those of tests/data/cheats.jsonl that try to pass tests without solving them."""

import os
from decimal import Decimal
from itertools import product

import pytest
from cases import cases, records
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.domains import resolve, sources
from rlkit.domains.code import extract
from rlkit.domains.grading import Grading, same_output, same_value
from rlkit.errors import Ungradable
from rlkit.rewards import Router
from rlkit.sandbox import programs
from rlkit.sandbox.levels import choose

CHEATS = {case["about"]: case["program"] for case in records("cheats")}
TRUTHS = {case["about"]: case["truth"] for case in records("tests_of_half")}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6, total_timeout=12)) as router:
        yield router


def grade_all(router, pairs, **info):
    """The rewards of (program, truth) pairs, which the workers share."""
    rows = [("codegen__x", fence(program), truth, info) for program, truth in pairs]
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
    found = [(case["endless"], (case["program"], case["truth"])) for case in records("programs_slow")]
    slow, endless = ([pair for endless, pair in found if endless is wanted] for wanted in (False, True))
    with Router(RewardConfig(num_workers=4, timeout=1.5, total_timeout=20)) as router:
        assert [reward.correct for reward in grade_all(router, slow)] == [True] * 3
        assert [reward.parts["reason"] for reward in grade_all(router, endless)] == ["time"] * 6
    with Router(RewardConfig(num_workers=3, timeout=5, total_timeout=1)) as router:
        assert [reward.parts["reason"] for reward in grade_all(router, slow)] == ["time"] * 3


def test_an_answer_that_comes_byte_by_byte_is_ended_by_the_sandbox():
    """They begin a message's length, or send all of it, and then a byte at a time."""
    rows = [(case["program"], TRUTHS["calls"]) for case in records("programs_stalling")]
    with Router(RewardConfig(num_workers=4, timeout=1, total_timeout=3)) as router:
        rewards = grade_all(router, rows)
    assert [(reward.correct, reward.error) for reward in rewards] == [(False, None)] * 4
    assert {reward.parts["reason"] for reward in rewards} <= {"time", "exit: the program sends no message"}


def test_a_message_that_would_take_long_to_read_is_none(router):
    """A list of a million numbers may be passed to a program, and come back."""
    forged = "import os, json\ndef half(x):\n    d = b'[\"value\", [[\"list\", [[1], [2]]], [\"list\", []]' + b', [\"list\", []]' * 1_200_000 + b']]'\n    os.write(3, len(d).to_bytes(8, 'big'))\n    while d: d = d[os.write(3, d):]\n    return 9"
    reward = grade(router, forged, TRUTHS["calls"])
    assert (reward.correct, reward.parts["reason"]) == (False, "exit: the program sends no message")
    honest = "def half(x):\n    return [n / 2 if n % 2 else n // 2 for n in x] if isinstance(x, list) else x / 2"
    long = {"functional": "x = list(range(1_000_000))\nassert half(x)[8:10] == [4, 4.5]"}
    assert grade(router, honest, long).correct


PAIRS = {"inputs": ["1 2\n", "10 -3\n"], "outputs": ["3\n", "7\n"]}
ASSERTS = {"functional": "assert add(1, 2) == 3\nassert add(5, -7) == -2\n"}
CALLS = {"fn_name": "add", "inputs": ["1\n2", "5\n-7"], "outputs": ["3", "-2"]}


def fence(program):
    return f"```python\n{program}\n```"


def test_a_row_may_give_its_tests_less_time(router):
    slow = "import time\ndef add(a, b):\n    time.sleep(0.8)\n    return a + b"
    prints = "import time; time.sleep(0.8); print(sum(map(int, input().split())))"
    pairs = [(prints, PAIRS), (slow, CALLS), (slow, ASSERTS)]
    assert all(reward.correct for reward in grade_all(router, pairs))
    late = grade_all(router, pairs, test_timeout=0.4)
    assert [(reward.correct, reward.parts["reason"]) for reward in late] == [(False, "time")] * 3
    unread = grade(router, slow, CALLS, test_timeout="1 s")
    assert "test_timeout of a program is '1 s': give seconds" in unread.error
    assert sources.parse({"kind": "programs"}).task(0).extra_info["test_timeout"] < RewardConfig().timeout


def test_numbers_of_any_length_are_read_and_written(router):
    long = str(Decimal(7**6000))
    assert len(long) > 4300
    prints, returns = "print(7 ** int(input()))", "def power(n):\n    return 7 ** n"
    assert grade(router, prints, {"inputs": ["6000"], "outputs": [long]}).correct
    assert grade(router, "print(int(input()) + 0)", {"inputs": [long], "outputs": [long]}).correct
    for output in (f'"{long}"', long):
        truth = f'{{"fn_name": "power", "inputs": ["6000"], "outputs": [{output}]}}'
        assert router.grade_rows([("codegen__x", fence(returns), truth, {})])[0].correct
    tests = "assert len(str(power(6000))) > 4300\nassert power(6000) == 7 ** 6000"
    assert grade(router, returns, {"functional": tests}).correct
    wrong = grade(router, returns, {"functional": "assert power(6000) == 7 ** 6001"})
    assert wrong.parts["reason"].startswith("AssertionError")


def test_large_values_are_passed_on_and_programs_too_long_to_be_any_are_wrong_at_once(router):
    big = {"functional": "assert sum(big(10 ** 6)) == 999999 * 10 ** 6 // 2\nassert big(2) == [0, 1]"}
    assert grade(router, "def big(n): return list(range(n))", big).correct
    assert grade(router, "x=1\n" * 250_000, PAIRS).parts["reason"].startswith("the program is longer")


def test_a_package_that_the_sandbox_should_have_and_has_not_is_an_error(monkeypatch):
    monkeypatch.setattr(programs, "missing_package", lambda _, reason: "numpy" if "numpy" in reason else None)
    program = fence("raise ModuleNotFoundError(\"No module named 'numpy'\")")
    for truth in (PAIRS, CALLS, ASSERTS):
        with pytest.raises(Ungradable, match="numpy"):
            resolve("codegen__x")(program, truth, {}, Grading(RewardConfig()))
    programs.close()
    lacking = programs.Tested(fault="the sandbox has no pytest")
    monkeypatch.setattr(programs, "run_tests", lambda *_, **__: lacking)
    with pytest.raises(Ungradable, match="the sandbox has no pytest"):
        resolve("codegen__x")(fence("x = 1"), {"pytest": "def test(): assert 1"}, {}, Grading(RewardConfig()))


VALUES = "10 ** 5000|{10 ** 5000: 1}|{1, 2}|object()|print|type|b'x'|1j|...|{(1, 2): 3}|{None: 1}|{float('nan'): 1}"
VALUES += "|range(3)|'\\ud800'|iter([1])|NotImplemented"


def test_no_returned_value_is_an_error(router):
    expected = ("[1]", '{"1": 1}', "3", "null", '"x"', "NaN", "1e400")
    truths = [f'{{"fn_name": "f", "inputs": ["1"], "outputs": [{value}]}}' for value in expected]
    programs = [fence(f"def f(x): return {value}") for value in VALUES.split("|")]
    rewards = router.grade_rows([("codegen__x", *case, {}) for case in product(programs, truths)])
    assert [r for r in rewards if r.correct is not False or r.error or "exception" in r.parts] == []


def test_the_last_python_fence_is_the_program_and_outputs_and_values_are_compared_as_judges_do():
    found = records("programs_extracted")
    assert [case for case in found if extract(case["response"]) != case["program"]] == []
    for file, same in (
        ("outputs_compared", same_output),
        ("values_compared", lambda *pair: same_value(*map(eval, pair))),
    ):
        given = list(cases(file))
        assert [case for case in given if same(*case[:2]) is not case[2]] == []
