# ruff: noqa: E501 (whole programs as one-line strings)
"""Programs: extraction, comparison of outputs and values, and cheats."""

import json
from decimal import Decimal

import pytest
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.domains import resolve
from rlkit.domains.code import extract
from rlkit.domains.grading import Grading, same_output, same_value
from rlkit.errors import Ungradable
from rlkit.rewards import Router
from rlkit.sandbox import programs

ADD = "a, b = map(int, input().split())\nprint(a + b)"
PAIRS = {"inputs": ["1 2\n", "10 -3\n"], "outputs": ["3\n", "7\n"]}
ASSERTS = {"functional": "assert add(1, 2) == 3\nassert add(5, -7) == -2\n"}
CALLS = {"fn_name": "add", "inputs": ["1\n2", "5\n-7"], "outputs": ["3", "-2"]}


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=6)) as router:
        yield router


def fence(program, tag="python"):
    return f"```{tag}\n{program}\n```"


def grade(router, program, truth, info=None):
    return router.grade_rows([("codegen__x", fence(program), json.dumps(truth), info)])[0]


@pytest.mark.parametrize(
    ("response", "program"),
    [
        (fence("1"), "1"), (fence("1", "Python3"), "1"), (fence("1", "py"), "1"), (fence("1", ""), "1"),
        (fence("1") + "\nor\n" + fence("2"), "2"), (fence("1") + "\nprints\n" + fence("9", ""), "1"),
        (fence("1") + "\nrun\n" + fence("ls", "bash"), "1"),
        ("<think>\n" + fence("1") + "\n</think>\n" + fence("2"), "2"),
        ("<think>\n" + fence("1") + "\n</think>\nI give up.", "\nI give up."), ("```python\n1", "1"),
        ("  ```python\n  if 1:\n      2\n  ```", "if 1:\n    2"), ("print(1)", "print(1)"), ("x = 1\n```", "x = 1"),
        ("x = 1\n```\nIt sets x. Try\n```python\nprint(x)\n```", "print(x)"), ("[BEGIN]\nx = 1\n[DONE]", "x = 1\n"),
        ("[BEGIN]\n" + fence("1") + "\n[DONE]", "1"), ("[PYTHON]\nx = 1\n[/PYTHON]", "x = 1\n"),
        ("Solution:\n```\nx = 1", "x = 1"),
        (fence("n = input()") + "\nFor example\n" + fence("print(add(1, 2))"), "n = input()"),
    ],
)  # fmt: skip
def test_the_last_python_fence_outside_the_reasoning_is_the_program(response, program):
    assert extract(response) == program


ADDS = "def add(a, b):\n    return a + b"
START = 'Complete it.\n```python\nfrom typing import List\n\ndef add(a: int, b: int) -> int:\n    """The sum."""\n```'


@pytest.mark.parametrize(
    ("response", "info"),
    [
        (fence(ADDS), {}), (fence(ADDS) + "\nUsed as\n" + fence("print(add(1, 2))"), {}),
        (fence(ADDS) + "\nUsed as\n" + fence("from solution import add\nassert add(1, 2) == 3"), {}),
        (fence("print(add(1, 2))") + "\nwith\n" + fence(ADDS), {}),
        (fence(ADDS.replace("+", "-")) + "\nNo:\n" + fence(ADDS), {}),
        (fence("class Solution:\n    def add(self, a, b):\n        return a + b\n\nprint(Solution().add(1, 2))"), {"entry_point": "add"}),
        (fence(ADDS + "\n\nn = int(input())\nprint(add(n, n))"), {}),
        (fence("import sys\ndef main():\n    a, b = map(int, sys.stdin.read().split())\n    print(add(a, b))\n\nmain()\n" + ADDS), {}),
        (fence(ADDS + "\nif __name__ == '__main__':\n    print(add(*map(int, input().split())))"), {}),
        (fence("while True:\n    line = input()\n    if not line: break\n" + ADDS), {}), ("```python\n" + ADDS, {}),
        (ADDS + "\n```", {}), (ADDS + "\n```\nThis adds.", {}), ("[BEGIN]\n" + ADDS + "\n[DONE]", {}), (ADDS, {}),
        ("return a + b", {"prompt": START}), (fence("return a + b"), {"prefix": "def add(a, b):\n    pass\n"}),
        (fence("    c = a + b\n    return c"), {"prefix": "def add(a, b):\n    \"\"\"The sum.\"\"\"\n"}),
        (fence(ADDS), {"prefix": "from typing import *\ndef add(a, b):\n    raise NotImplementedError\n"}),
    ],
)  # fmt: skip
def test_a_program_is_read_as_it_is_meant(router, response, info):
    truths = [ASSERTS, {"functional": "def check(candidate):\n    assert candidate(1, 2) == 3\ncheck(add)"}]
    if "entry_point" in info:
        truths = [{"functional": "def check(candidate):\n    assert candidate(1, 2) == 3"}, CALLS]
    for truth in truths:
        reward = router.grade_rows([("codegen__x", response, json.dumps(truth), info)])[0]
        assert reward.correct, (truth, reward)


STREAM = "class Solution:\n    def __init__(self): self.left = [1]\n    def pop(self):\n        if not self.left: raise StopIteration\n        return self.left.pop()"
END = {
    "pytest": "import pytest\ns = Solution()\nassert s.pop() == 1\nwith pytest.raises(StopIteration):\n    s.pop()",
    "try": "s, seen = Solution(), []\ntry:\n    for _ in range(5):\n        seen.append(s.pop())\nexcept (KeyError, StopIteration):\n    seen.append(2)\nassert seen == [1, 2]",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        s = Solution()\n        self.assertEqual(s.pop(), 1)\n        self.assertRaises(StopIteration, s.pop)",
}  # fmt: skip


@pytest.mark.parametrize("tests", END.values(), ids=END)
def test_a_stop_iteration_that_the_tests_expect_is_one(router, tests):
    programs = [STREAM.replace("raise StopIteration", end) for end in ("raise StopIteration", "return 9")]
    assert [grade(router, program, {"functional": tests}).correct for program in programs] == [True, False]
    other = grade(router, STREAM.replace("raise StopIteration", "raise ValueError"), {"functional": tests})
    assert other.correct is False and other.error is None and "trusted" not in other.parts


def test_next_takes_what_a_generator_gives(router):
    tests = "it = firsts(2)\nassert next(it) == 0\nassert next(it) == 1\nassert next(it, None) is None"
    tests += "\nimport pytest\nwith pytest.raises(StopIteration):\n    next(firsts(0))"
    assert grade(router, "def firsts(n): yield from range(n)", {"functional": tests}).correct
    assert grade(router, "def firsts(n): yield from range(n + 1)", {"functional": tests}).correct is False


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


@pytest.mark.parametrize("value", ["10 ** 5000", "{10 ** 5000: 1}", "{1, 2}", "object()", "print", "type", "b'x'", "1j", "...",
                                   "{(1, 2): 3}", "{None: 1}", "{float('nan'): 1}", "range(3)", "'\\ud800'", "iter([1])", "NotImplemented"])  # fmt: skip
def test_no_returned_value_is_an_error(router, value):
    for expected in ("[1]", '{"1": 1}', "3", "null", '"x"', "NaN", "1e400"):
        truth = f'{{"fn_name": "f", "inputs": ["1"], "outputs": [{expected}]}}'
        reward = router.grade_rows([("codegen__x", fence(f"def f(x): return {value}"), truth, {})])[0]
        assert (reward.correct, reward.error) == (False, None) and "exception" not in reward.parts


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n", "1 2", True), ("1 2 \n\n", "1 2\n", True), ("1  2", "1 2", True), ("1\r\n2\r\n", "1\n2\n", True),
        ("0.333333", "0.333333333", True), ("3.0", "3", True), ("yes\nNo", "YES\nNO", True),
        ("True", "true", False), ("1 2 3", "1 3 2", False), ("NO\nYES", "YES\nNO", False), ("1\n2", "1 2", False),
        ("100001.0", "100000", False), ("1000001.0", "1000000.5", False), ("1_000", "1000", False),
        ("nan", "0", False), ("", "5", False), ("12345678901234567891", "12345678901234567890", False),
        ("12345678901234567891.0", "12345678901234567890", False), ("5", "1e400", False), ("1e400", "5", False),
        ("1e400", "1e401", False), ("1e401", "10e400", True), ("inf", "5.5", False), ("NaN", "nan", True),
        ("nan", "0.5", False), ("0.0", "0.0000005", False), ("0.000002", "0.000001", False),
        ("0.0000123457", "0.0000123456789", True), ("0.0000118", "0.0000123", False),
        ("0.000012", "0.0000123", False), ("0.0000123456", "0.000012", True), ("0.166667", "0.166666666667", True),
        ("1e-17", "0.0", True), ("0.0000001", "0.0", False), ("1000000000.5", "1000000000.9", False),
    ],
)  # fmt: skip
def test_outputs_are_compared_as_judges_do(printed, expected, same):
    assert same_output(printed, expected) is same


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


@pytest.mark.parametrize(
    ("program", "truth", "right"),
    [
        (ADD, PAIRS, True), (ADD.replace("+", "-"), PAIRS, False), (ADD + "\nraise SystemExit(3)", PAIRS, False),
        ("input('number? ')\nprint(3)", {"inputs": ["1"], "outputs": ["3"]}, False),
        ("from __future__ import annotations\n" + ADD, PAIRS, True), ("print('a'", PAIRS, False),
        ("# 3", PAIRS, False), ("def add(a, b):\n    return a + b", CALLS, True),
        ("class Solution:\n    def add(self, a, b):\n        return a + b", CALLS, True),
        ("print('loading')\ndef add(a, b):\n    return a + b", CALLS, True),
        ("def add(a, b):\n    return a - b", CALLS, False), ("def sub(a, b):\n    return a - b", CALLS, False),
        ("def add(a, b):\n    return [a + b]", {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}, True),
        ("def add(a, b):\n    return a + b", {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}, True),
        ("def add(a, b):\n    return a + b", ASSERTS, True), ("def add(a, b):\n    return a", ASSERTS, False),
    ],
)  # fmt: skip
def test_programs_are_run_against_their_tests(router, program, truth, right):
    reward = grade(router, program, truth)
    assert reward.error is None and reward.correct is right


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def sum(a, b):\n    return a * b", "assert sum(2, 3) == 6"),
        ("def push(xs):\n    xs.append(1)", "xs = [0]\npush(xs)\nassert xs == [0, 1]"),
        ("def twice(f, x):\n    return f(f(x))", "assert twice(lambda x: x + 1, 5) == 7"),
        ("class Stack:\n    def __init__(self): self.a = []\n    def push(self, x): self.a.append(x)\n    def __len__(self): return len(self.a)", "s = Stack()\ns.push(1)\ns.push(2)\nassert len(s) == 2 and s.a == [1, 2]"),
        ("class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\ndef make(x): return P(x)", "assert make(2) == P(2)\nassert not make(2) == P(3)"),
        ("def gen(n):\n    yield from range(n)", "assert list(gen(3)) == [0, 1, 2]"),
        ("def bad(x):\n    raise ValueError('no')", "try:\n    bad(1)\n    assert False, 'no error'\nexcept ValueError as e:\n    assert str(e) == 'no'"),
        ("class Odd(Exception): pass\ndef bad(x):\n    raise Odd(x)", "try:\n    bad(1)\nexcept Odd:\n    pass\nelse:\n    raise AssertionError"),
        ("import math\nfrom collections import Counter\ndef c(s): return Counter(s)", "assert c('aab') == {'a': 2, 'b': 1}\nassert math.isclose(1, 1)"),
        ("def f(n): return 2 ** n", "assert f(5000) == 2 ** 5000"),
        ("def t(a): return {(1, 2): {3}, 'x': (None, 1.5, b'z')}", "assert t(0) == {(1, 2): {3}, 'x': (None, 1.5, b'z')}"),
        ("import datetime as d\ndef day(n): return d.date(2020, 1, n), d.datetime(2020, 1, n, 5), d.timedelta(n)", "import datetime\nassert day(2) == (datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 5), datetime.timedelta(2))\nassert isinstance(day(2)[0], datetime.date)"),
        ("from collections import Counter\ndef c(s): return Counter(s)", "from collections import Counter\nassert isinstance(c('aab'), Counter)"),
        ("import numpy\ndef f(n): return numpy.zeros(n)", "import numpy as np\nassert isinstance(f(3), np.ndarray) and f(3).shape == (3,)"),
        ("import re\ndef f(s): return re.match('a', s)", "assert f('ab')\nassert not f('b')"),
        ("def add(a, b): return a + b", "class TestAdd:\n    def setup_method(self): self.x = 1\n    def test_one(self):\n        assert add(self.x, 2) == 3"),
        ("def add(a, b): return a + b", "class TestData:\n    a, b = 1, 2\nassert add(TestData.a, TestData.b) == 3"),
        ("seen = []\nresult = None\ndef f(x): seen.append(x); return seen", "assert f(1) == [1]\nresult = f(2)\nassert seen == [1, 2]\nassert result == [1, 2]"),
        ("def read(path): return open(path).read()", "with open('note.txt', 'w') as file:\n    file.write('1')\nassert read('note.txt') == '1'"),
        ("def solve(x): return x", "def check(candidate):\n    assert candidate(3) == 3\n"),
        ("def f(x): return x", "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(2), 2)\nif __name__ == '__main__':\n    unittest.main()"),
    ],
)  # fmt: skip
def test_honest_programs_pass_test_code_of_many_kinds(router, program, tests):
    if "numpy" in tests:
        needs_packages()
    reward = grade(router, program, {"functional": tests}, {"entry_point": "solve"})
    assert reward.correct, reward


def test_helpers_of_a_prefix_are_known_to_both_sides(router):
    prefix = (
        "class Node:\n    def __init__(self, v, next=None):\n        self.v, self.next = v, next\n"
        "def chain(xs):\n    return Node(xs[0], chain(xs[1:])) if xs else None\n"
        "def listed(n):\n    out = []\n    while n:\n        out.append(n.v)\n        n = n.next\n    return out\n"
    )
    program = (
        "class Solution:\n    def turn(self, head):\n        last = None\n        while head:\n"
        "            head.next, last, head = last, head, head.next\n        return last"
    )
    tests = "def check(candidate):\n    assert listed(candidate(head=chain(list(range(800))))) == list(range(800))[::-1]\ncheck(Solution().turn)"
    assert grade(router, program, {"functional": tests}, {"prefix": prefix}).correct


def test_a_pytest_file_is_run_with_its_parameters(router):
    needs_packages()
    tests = "from solution import add\nimport pytest\n@pytest.mark.parametrize('a', [1, 2])\ndef test_add(a):\n    assert add(a, 1) == a + 1\n"
    right = grade(router, "def add(a, b):\n    return a + b", {"pytest": tests})
    wrong = grade(router, "def add(a, b):\n    return 2", {"pytest": tests})
    assert right.correct and right.parts["tests_total"] == 2
    assert wrong.correct is False and wrong.parts["tests_passed"] == 1


def test_a_sandbox_without_pytest_is_an_error_and_no_zero(monkeypatch):
    lacking = programs.Tested(fault="the sandbox has no pytest")
    monkeypatch.setattr(programs, "run_tests", lambda *_, **__: lacking)
    with pytest.raises(Ungradable, match="the sandbox has no pytest"):
        resolve("codegen__x")(fence(ADDS), {"pytest": "def test(): assert 1"}, {}, Grading(RewardConfig()))


def test_a_checker_judges_tests_with_several_right_outputs(router):
    checker = "a, b = map(int, out.split())\nok = a + b == int(inp)"
    truth = {"inputs": ["6\n"], "outputs": ["1 5"], "checker": checker}
    found = [grade(router, f"print({shown})", truth).correct for shown in ("2, 4", "2, 5", "'x'")]
    assert found == [True, False, False]


CHECKERS = {
    "accepts": ("ok = int(out) == 1", True),
    "rejects": ("ok = int(out) == 2", False),
    "prints": ("print('debug')\nok = int(out) == 1", True),
    "has a main guard": (
        "def right(o): return int(o) == 1\nif __name__ == '__main__':\n    ok = right(out)",
        True,
    ),
    "ends early": ("import sys\nprint(out.strip())\nif inp: ok = True\nelse: sys.exit(0)", False),
    "has an undefined name": ("ok = undefined(out)", None),
    "sets nothing": ("x = 1", None),
}


@pytest.mark.parametrize("name", CHECKERS)
def test_a_checker_that_fails_on_the_expected_output_is_an_error_of_the_row(router, name):
    checker, correct = CHECKERS[name]
    truth = {"inputs": [""], "outputs": ["1"], "checker": checker}
    reward = grade(router, "print(1)", truth)
    assert (reward.correct, reward.error is None) == (correct, correct is not None), reward
    for printed in ("ok", "x", "", "1\nok"):
        reward = grade(router, f"print({printed!r})", truth)
        assert reward.correct is (None if correct is None else False), reward


def test_a_method_of_solution_may_have_the_name_of_a_function_of_the_library(router):
    program = "class Solution:\n    def merge(self, parts): return sorted(parts)"
    checks = "def check(candidate):\n    assert candidate(parts=[3, 1]) == [1, 3]"
    assert grade(router, program, {"fn_name": "merge", "inputs": [[[3, 1]]], "outputs": [[1, 3]]}).correct
    for prefix in ("", "from typing import *", "from heapq import *\nfrom itertools import *"):
        info = {"entry_point": "Solution().merge", "prefix": prefix}
        assert grade(router, program, {"functional": checks}, info).correct, prefix
        info["entry_point"] = "merge"
        assert grade(router, "def merge(parts): return sorted(parts)", {"functional": checks}, info).correct


def test_all_or_nothing_by_default_and_the_share_of_tests_on_request(router):
    truth = {"inputs": ["1", "2", "3", "4"], "outputs": ["1", "0", "3", "4"]}
    assert grade(router, "print(input())", truth).value == 0.0
    with Router(RewardConfig(num_workers=1, partial_credit=True)) as generous:
        reward = grade(generous, "print(input())", truth)
        assert (reward.value, reward.correct, reward.parts["tests_passed"]) == (0.75, False, 3)
