"""Programs: extraction, comparison of outputs and values; their verdicts are in tests/data/verdicts/programs.jsonl."""

import json
from decimal import Decimal
from itertools import product

import pytest
from cases import records

from rlkit.config import RewardConfig
from rlkit.domains import resolve, sources
from rlkit.domains.code import extract
from rlkit.domains.grading import Grading, same_output, same_value
from rlkit.errors import Ungradable
from rlkit.rewards import Router
from rlkit.sandbox import programs

PAIRS = {"inputs": ["1 2\n", "10 -3\n"], "outputs": ["3\n", "7\n"]}
ASSERTS = {"functional": "assert add(1, 2) == 3\nassert add(5, -7) == -2\n"}
CALLS = {"fn_name": "add", "inputs": ["1\n2", "5\n-7"], "outputs": ["3", "-2"]}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6)) as router:
        yield router


def fence(program):
    return f"```python\n{program}\n```"


def grade(router, program, truth, info=None):
    return router.grade_rows([("codegen__x", fence(program), json.dumps(truth), info)])[0]


@pytest.mark.parametrize("truth, program", [
    (PAIRS, "import time; time.sleep(0.8); print(sum(map(int, input().split())))"),
    (CALLS, "import time\ndef add(a, b):\n    time.sleep(0.8)\n    return a + b"),
    (ASSERTS, "import time\ndef add(a, b):\n    time.sleep(0.8)\n    return a + b"),
], ids=["input", "calls", "assertions"])  # fmt: skip
def test_a_row_may_give_its_tests_less_time(router, truth, program):
    assert grade(router, program, truth).correct
    late = grade(router, program, truth, {"test_timeout": 0.4})
    assert late.correct is False and late.parts["reason"] == "time"
    assert "test_timeout of a program is '1 s': give seconds" in str(
        grade(router, program, truth, {"test_timeout": "1 s"}).error
    )
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


def test_the_last_python_fence_is_the_program_and_outputs_are_compared_as_judges_do():
    found = records("programs_extracted")
    assert [case for case in found if extract(case["response"]) != case["program"]] == []
    found = records("outputs_compared")
    assert [
        case for case in found if same_output(case["printed"], case["expected"]) is not case["same"]
    ] == []


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, 2), [1, 2], True), ([(1, 2)], [[1, 2]], True), ({1: "a"}, {"1": "a"}, True), (0.1 + 0.2, 0.3, True),
        (2.0, 2, True), (1, True, False), ("1", 1, False), (None, 0, False), ([1], [1, 1], False),
        ({1, 2}, [1, 2], False), (10**400, 1.0, False), (10**400, 10**400, True), (3, float("inf"), False),
        (float("inf"), float("inf"), True), (float("-inf"), float("inf"), False),
        (float("nan"), float("nan"), True), (float("nan"), 3.0, False), (1e-7, 3e-7, False), (0, 1e-7, False),
        ([1 / 3, 2 / 3], [0.333333, 0.666667], True), (2.9999999999999996, 3, True),
        ({10**5000: 1}, {"1": 1}, False), ({1: 2, "1": 3}, {"1": 3}, False),
    ],
)  # fmt: skip
def test_values_are_compared_by_content_and_type(got, expected, same):
    assert same_value(got, expected) is same
