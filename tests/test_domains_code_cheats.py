# ruff: noqa: E501 (whole programs as one-line strings)
"""Programs that try to pass their tests without solving them, and test code that tests nothing."""

import json
import os
from itertools import product

import pytest
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.rewards import Router
from rlkit.sandbox.levels import choose


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


TRUTHS = {
    "equality": {"functional": "assert half(3) == 1.5\nassert half(8) == 4"},
    "tolerance": {"functional": "assert abs(half(3) - 1.5) < 1e-9\nassert abs(half(8) - 4) <= 1e-9"},
    "builtins": {"functional": "assert abs(half(3) - 1.5) < 1e-9\nassert sorted([half(8), 0]) == [0, 4]"},
    "order": {"functional": "assert 1.4 < half(3) < 1.6\nassert half(8) > 3.9 and half(8) <= 4"},
    "containment": {"functional": "assert 1.5 in [half(3)]\nassert half(8) in (4, 5)\nassert min(half(8), 4) == max(half(8), 4)"},
    "isclose": {"functional": "import math\nassert math.isclose(half(3), 1.5)\nassert math.isclose(half(8), 4)"},
    "check": {"functional": "def check(candidate):\n    assert candidate(3) == 1.5\n    assert candidate(8) == 4"},
    "map": {"functional": "assert all(map(lambda c: half(c[0]) == c[1], [(3, 1.5), (8, 4)]))"},
    "unittest": {"functional": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(half(3), 1.5)\n        self.assertAlmostEqual(half(8), 4)"},
    "pytest": {"pytest": "import pytest\nfrom solution import half\ndef test_half():\n    assert half(3) == pytest.approx(1.5)\n    assert half(8) == 4"},
    "calls": {"fn_name": "half", "inputs": ["3", "8"], "outputs": ["1.5", "4"]},
}  # fmt: skip

BODY = '["", {"passed": 2, "total": 2, "error": null, "fault": null, "insufficient": false}]'
# As the tests send theirs.
VERDICT = "".join(f"\\x{byte:02x}" for byte in len(BODY).to_bytes(8, "big")) + BODY
EVERY = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__bool__"]
FORMS = ["__sub__", "__rsub__", "__add__", "__radd__", "__abs__", "__mul__", "__truediv__", "__round__", "__neg__",
         "__pos__", "__iter__", "__getitem__"]  # fmt: skip


def chameleon(base="", following="s"):
    """A class that is everything that it is compared with."""
    lines = [f"class C({base}):\n    __hash__ = lambda s: 0\n    __len__ = lambda s: 1"]
    lines += [f"    __next__ = lambda s: {following}"]
    lines += [f"    {name} = lambda s, *o: {name != '__ne__'}" for name in EVERY]
    lines += [f"    {name} = lambda s, *o: s" for name in FORMS]
    return "\n".join(lines)


CHEATS = {
    "an object that is everything": chameleon(following="next(iter(()))") + "\ndef half(x): return C()",
    "an int that is everything": chameleon("int") + "\ndef half(x): return C(7)",
    "a float that is everything": chameleon("float") + "\ndef half(x): return C(7)",
    "a str that is everything": chameleon("str") + "\ndef half(x): return C('7')",
    "a list that is everything": chameleon("list") + "\ndef half(x): return C([7])",
    "a tuple that is everything": chameleon("tuple") + "\ndef half(x): return C([7])",
    "a dict that is everything": chameleon("dict") + "\ndef half(x): return C()",
    "a class that pretends to be float": "class M(type):\n    __instancecheck__ = lambda c, o: True\n    __eq__ = lambda c, o: True\n    __hash__ = type.__hash__\nclass float(metaclass=M): pass\ndef half(x): return float",
    "nan": "def half(x): return float('nan')",
    "infinity": "def half(x): return float('inf')",
    "minus infinity": "def half(x): return float('-inf')",
    "decimal nan": "from decimal import Decimal\ndef half(x): return Decimal('nan')",
    "numpy nan": "import numpy\ndef half(x): return numpy.full(3, numpy.nan)",
    "mock.ANY": "from unittest import mock\ndef half(x): return mock.ANY",
    "pytest.approx of everything": "class A:\n    __eq__ = lambda s, o: True\n    __array_ufunc__ = None\n    __radd__ = __rsub__ = lambda s, o: 0\ndef half(x): return A()",
    "patched math": "import math\nmath.isclose = lambda *a, **k: True\ndef half(x): return 0",
    "a math of its own": "class math:\n    isclose = staticmethod(lambda *a, **k: True)\nabs = lambda x: 0\nmin = max = lambda *a: 0\ndef half(x): return 0",
    "patched builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.min = builtins.max = lambda *x: 0\nbuiltins.all = builtins.any = lambda *x: True\ndef half(x): return 9",
    "patched unittest": "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.assertAlmostEqual = lambda *a, **k: None\nunittest.main = lambda *a, **k: None\ndef half(x): return 9",
    "patched pytest": "import sys\ntry:\n    import pytest\n    pytest.main = lambda *a, **k: 0\n    pytest.approx = lambda x: 9\nexcept ImportError: pass\ndef half(x): return 9",
    "modules replaced": "import sys, types\nfor n in ('unittest', 'pytest', 'math', 'inside', 'ast', 'json'):\n    sys.modules[n] = types.ModuleType(n)\ndef half(x): return 9",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef half(x): return 9",
    "SystemExit on load": "import sys\ndef half(x): return 0\nsys.exit(0)",
    "shadowed builtins": "abs = lambda x: 0\nsorted = lambda x: [0, 4]\ndef half(x): return 9",
    "prints a verdict": "print('ALL TESTS PASSED')\nprint('{\"passed\": 2, \"total\": 2, \"error\": null}')\ndef half(x): return 0",
    "recurses": "def half(x): return half(x)",
    "AssertionError in a call": "def half(x): raise AssertionError",
    "exit on load": "import os\ndef half(x): return 9\nos._exit(0)",
    "exit in a call": "import os\ndef half(x): os._exit(0)",
    "StopIteration in a call": "def half(x): raise StopIteration",
    "a StopIteration of its own in a call": "class S(StopIteration): pass\ndef half(x): raise S(x)",
    "SystemExit in a call": "def half(x): raise SystemExit(0)",
    "exit from a thread": "import os, threading, time\ndef half(x): time.sleep(1); return 9\nthreading.Thread(target=lambda: (time.sleep(0.1), os._exit(0))).start()",
    "exit by a signal": "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ndef half(x):\n    while True: pass",
    "kills its parent": "import os, signal\ndef half(x):\n    os.kill(os.getppid(), signal.SIGTERM); return 9",
    "skips": "import unittest\ndef half(x): raise unittest.SkipTest('no')",
    "pytest skip": "def half(x):\n    import pytest\n    pytest.skip('no')",
    "a GeneratorExit": "def half(x): raise GeneratorExit",
    "a KeyboardInterrupt": "def half(x): raise KeyboardInterrupt",
    "an exception without its arguments": "def half(x): raise UnicodeDecodeError('a', b'', 0, 1, 'b')",
    "writes a verdict to every descriptor": f"import os\ndef tell():\n    for n in range(256):\n        try: os.write(n, b'{VERDICT}')\n        except OSError: pass\ntell()\ndef half(x):\n    tell()\n    os._exit(0)",
    "writes a verdict through /proc/self/fd": f"import os\ndef half(x):\n    for n in os.listdir('/proc/self/fd'):\n        try: open('/proc/self/fd/' + n, 'wb', buffering=0).write(b'{VERDICT}')\n        except OSError: pass\n    os._exit(0)",
    "writes to its parent's memory": "import os\ndef half(x):\n    for p in os.listdir('/proc'):\n        if p.isdigit() and int(p) != os.getpid():\n            try:\n                for n in os.listdir(f'/proc/{p}/fd'):\n                    open(f'/proc/{p}/fd/{n}', 'wb', buffering=0).write(b'" + VERDICT + "')\n                open(f'/proc/{p}/mem', 'r+b').write(b'x')\n            except OSError: pass\n    return 9",
    "traces the others": "import ctypes, os\ndef half(x):\n    libc = ctypes.CDLL(None)\n    return 9 if libc.ptrace(16, os.getppid(), 0, 0) else 9",
    "a leftover thread answers": "import threading, socket, time\ndef later():\n    time.sleep(0.05)\n    s = socket.socket(fileno=3)\n    for _ in range(9): s.sendall(bytes(7) + b'\x02{}')\ndef half(x):\n    threading.Thread(target=later).start(); time.sleep(0.2); return 9",
    "answers ahead": "import os, json\ndef say(v):\n    d = json.dumps(['value', [['list', [[1], [2]]], ['v', v], ['list', []]]]).encode()\n    os.write(3, len(d).to_bytes(8, 'big') + d)\nsay(9); say(9)\ndef half(x): return 9",
    "asks the tests to call": "import os, json\nnodes = [['list', [[1], [2], [3], [4]]], ['v', 'call'], ['import', 'posix', 'write'], ['list', []], ['dict', []]]\ndef half(x):\n    for kind in ('request', 'call', 'value', 'loaded'):\n        d = json.dumps([kind, nodes, None]).encode()\n        os.write(3, len(d).to_bytes(8, 'big') + d)\n    return 0",
    "names a function of the library": "import os, json\ndef half(x):\n    for node in (['import', 'os', '_exit'], ['function', 'half'], ['own', 0], ['module', 'os'], ['object', [], 'object'], ['opaque', []]):\n        d = json.dumps(['value', [['list', [[1], [1]]], node]]).encode()\n        os.write(3, len(d).to_bytes(8, 'big') + d)\n    os._exit(0)",
    "an exception of the tests' own": "import os, json\ndef half(x):\n    d = json.dumps(['raise', 'SystemExit', '__main__', [0]]).encode()\n    os.write(3, len(d).to_bytes(8, 'big') + d)\n    return 9",
    "no message": "import os\ndef half(x):\n    os.write(3, b'9' * 8 + b'x' * 99); return 9",
    "deep nonsense": "import os\ndef half(x):\n    d = b'[' * 200000\n    os.write(3, len(d).to_bytes(8, 'big') + d); return 9",
    "cyclic tuples": "import os, json\ndef half(x):\n    d = json.dumps(['value', [['list', [[1], [2]]], ['tuple', [[1], [1]]], ['list', []]]]).encode()\n    os.write(3, len(d).to_bytes(8, 'big') + d); return 9",
    "a fraction without end": "import os, json\ndef half(x):\n    for n in ('Fraction', 'Decimal'):\n        d = json.dumps(['value', [['list', [[1], [1]]], [n, '1e999999999']]]).encode()\n        os.write(3, len(d).to_bytes(8, 'big') + d)\n    return 9",
    "a cycle": "def half(x):\n    a = []\n    a.append(a)\n    return a",
    "an endless iterator": "import itertools\ndef half(x): return itertools.count()",
    "a number of 5,000 digits": "def half(x): return 10 ** 5000",
    "a key of 5,000 digits": "def half(x): return {10 ** 5000: 1}",
    "unhashable keys": "import os, json\ndef half(x):\n    d = json.dumps(['value', [['list', [[1], [2]]], ['set', [[2]]], ['list', []]]]).encode()\n    os.write(3, len(d).to_bytes(8, 'big') + d); return 9",
    "sitecustomize": "open('sitecustomize.py', 'w').write('import os; os._exit(0)')\nopen('usercustomize.py', 'w').write('import os; os._exit(0)')\nopen('conftest.py', 'w').write('collect_ignore_glob = [\"*\"]')\nopen('math.py', 'w').write('isclose = lambda *a: True')\ndef half(x): return 9",
    "pytest files": "open('pytest.ini', 'w').write('[pytest]\\naddopts = --collect-only')\nopen('test_solution.py', 'w').write('def test(): pass')\ndef half(x): return 9",
    "pytest files where all may write": "import os\nfor n, t in (('pytest.ini', '[pytest]\\naddopts = -p conftest'), ('conftest.py', 'import math\\nmath.inf = 1\\ndef pytest_collection_modifyitems(items):\\n    for i in items: i.runtest = lambda: __check__()')):\n    try:\n        open('/tmp/' + n, 'w').write(t)\n        os.chmod('/tmp/' + n, 0o644)\n    except OSError: pass\ndef half(x): return 9",
    "looks for the answer in memory": "import gc\ndef half(x):\n    for o in gc.get_objects():\n        if isinstance(o, (str, list, tuple, dict)) and half.__name__ + '(3)' in str(o)[:10000]: return 1.5 if x == 3 else 4\n    return 9",
    "looks for the answer on the stack": "import sys\ndef half(x):\n    f = sys._getframe()\n    while f:\n        if half.__name__ + '(3)' in str(f.f_locals) + str(f.f_globals): return 1.5 if x == 3 else 4\n        f = f.f_back\n    return 9",
    "a tracer": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\nsys.addaudithook(lambda *a: None)\ndef half(x): return 9",
    "changes frames": "import sys\ndef half(x):\n    f = sys._getframe(1)\n    f.f_locals['value'] = 1.5\n    f.f_globals['Plain'] = f.f_globals['send'] = None\n    return 9",
    "hides a name of the tests": "check = lambda f: None\nclass T: pass\ntest_half = lambda: None\n__check__ = None\n__name__ = 'x'\nAssertionError = ValueError\ndef half(x): return 9",
    "reads the tests' files": "import glob, os\ndef half(x):\n    for n in glob.glob('/tmp/**', recursive=True) + glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/fd/*'):\n        try:\n            if os.path.isfile(n) and half.__name__ + '(3)' in open(n, errors='replace').read(): return 1.5 if x == 3 else 4\n        except OSError: pass\n    return 9",
}  # fmt: skip


LOOP = "for got, right in zip(map(half, [3, 8]), [1.5, 4]):\n    assert got == right"


@pytest.mark.parametrize("tests", [
    LOOP, "try:\n" + LOOP.replace("for", "    for").replace("    assert", "        assert") + "\nexcept StopIteration:\n    pass",
    "class Calls:\n    left = [8, 3]\n    def __iter__(self): return self\n    def __next__(self): return half(self.left.pop())\n"
    "try:\n    for got in Calls():\n        assert got in (1.5, 4)\nexcept StopIteration:\n    pass",
])  # fmt: skip
def test_a_stop_iteration_ends_no_loop_of_the_tests(router, tests):
    stops = "def half(x):\n    if x > 3: raise StopIteration\n    return x / 2"
    assert grade(router, stops, {"functional": tests}).correct is False


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the fallback needs root")


# How tests compare is the same on every level: the fallback is tried with each way of running them.
FALLBACK = [("rlimits", truth) for truth in ("equality", "check", "unittest", "pytest", "calls")]
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


STACK = "s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert len(s) == 1"


def test_tests_of_the_programs_own_classes_run_in_its_process_and_say_so(router):
    right = "class Stack:\n    def __init__(self): self.a = []\n    def push(self, x): self.a.append(x)\n    def pop(self): return self.a.pop()\n    def __len__(self): return len(self.a)"
    reward = grade(router, right, {"functional": STACK})
    assert reward.correct and reward.parts["trusted"] is False
    assert grade(router, right.replace(".pop()", ".pop(0)"), {"functional": STACK}).correct is False
    assert "trusted" not in grade(router, "def half(x): return x / 2", TRUTHS["equality"]).parts


SIMPLE = [
    "exit on load",
    "writes a verdict to every descriptor",
    "patched builtins",
    "atexit",
    "modules replaced",
]


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_cheats_fail_in_the_programs_process_too(router, name):
    wrong = CHEATS[name] + "\nclass Stack:\n    push = pop = lambda s, *x: None\n    __len__ = lambda s: 7"
    assert grade(router, wrong, {"functional": STACK}).correct is False


def test_a_program_cannot_say_that_the_tests_are_at_fault(router):
    """Else a policy could have its wrong answers left out."""
    outcome = {"passed": 0, "total": 1, "error": None, "fault": "they say nothing", "insufficient": False}
    find = "f = sys._getframe()\n        while not isinstance(f.f_locals.get('job'), dict): f = f.f_back\n"
    program = (
        f"import json, os, sys\nclass Stack:\n    def push(self, x):\n        {find}"
        f"        d = json.dumps([f.f_locals['job']['nonce'], json.loads({json.dumps(outcome)!r})]).encode()\n"
        "        os.write(3, len(d).to_bytes(8, 'big') + d)\n        os._exit(0)"
    )
    reward = grade(router, program, {"functional": STACK})
    assert (reward.correct, reward.error) == (False, None)


WAYS = [
    "import unittest; raise unittest.SkipTest('no')",
    "raise SystemExit(0)",
    "import pytest; pytest.skip('no')",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "truth",
    [
        {"functional": "for n in (1, 2):\n    s = Stack()\n    s.push(n)\n    assert s.pop() == n"},
        {"functional": "import unittest\nclass T(unittest.TestCase):\n    def test_push(self):\n        self.assertIsNone(Stack().push(1))\n    def test_pop(self):\n        self.assertEqual(Stack().pop(), 2)"},
        {"pytest": "from solution import Stack\ndef test_push():\n    assert Stack().push(1) is None\ndef test_pop():\n    assert Stack().pop() == 2"},
    ],
)  # fmt: skip
def test_a_program_cannot_end_or_skip_the_tests_that_run_in_its_process(router, truth, way):
    if "pytest" in truth:
        needs_packages()
    program = f"class Stack:\n    def push(self, x): pass\n    def pop(self):\n        {way}"
    assert grade(router, program, truth).correct is False


def test_the_tests_decide_where_they_run_and_never_the_program(router):
    """A program cannot have itself tested in its own process by what it returns."""
    cheat = CHEATS["an object that is everything"]
    programs = (cheat, "def half(x): return lambda: 3", "def half(x): yield 3")
    tests = ("assert half(half(3)) == 0.75", "assert half(3) == 1.5", "x = half(3)\nassert half(x) == 0.75")
    pairs = [(program, {"functional": test}) for program, test in product(programs, tests)]
    for pair, reward in zip(pairs, grade_all(router, pairs), strict=True):
        assert reward.correct is False and "trusted" not in reward.parts, pair


def test_an_object_that_is_everything_and_has_no_end_is_wrong_in_time(router):
    reward = grade(router, chameleon() + "\ndef half(x): return C()", TRUTHS["equality"])
    assert (reward.correct, reward.error, reward.parts["reason"]) == (False, None, "time")


PREFIX = "import math\ndef is_same_list(a, b):\n    return list(a) == list(b)\nclass Node:\n    def __init__(self, v):\n        self.v = v\n    def __eq__(self, o): return self.v == o.v\n"


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def is_same_list(a, b): return True\nclass Solution:\n    def f(self, x): return []", "def check(candidate):\n    assert is_same_list(candidate([1, 2]), [2, 1])\ncheck(Solution().f)"),
        ("class math:\n    isclose = staticmethod(lambda *a: True)\ndef f(x): return 0", "assert math.isclose(f(3), 1.5)"),
        ("class Node:\n    def __init__(self, v): self.v = v\n    __eq__ = lambda s, o: True\ndef f(x): return Node(9)", "assert f(3) == Node(4)"),
        ("class Node:\n    __eq__ = lambda s, o: True\ndef f(x): return Node()", "assert f(3) == Node(4)"),
        ("def f(x):\n    n = Node(9)\n    n.__eq__ = n.v = True\n    return n", "assert f(3) == Node(4)"),
        ("def f(n):\n    Node.__eq__ = lambda s, o: True\n    n.v = 9\n    return n", "assert f(Node(3)) == Node(4)"),
    ],
)  # fmt: skip
def test_names_of_the_tests_prefix_are_the_prefixs(router, program, tests):
    assert grade(router, program, {"functional": tests}, prefix=PREFIX).correct is False


SQUARE, ZERO = "def square(n):\n    return n * n", "def square(n):\n    return 0"
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"


@pytest.mark.parametrize(
    ("truth", "info"),
    [
        ({"functional": CHECK}, {"entry_point": "square"}), ({"functional": CHECK}, {}),
        ({"functional": CHECK + "check(square)"}, {}),
        ({"functional": CHECK}, {"entry_point": "Solution().square"}),
        ({"functional": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(square(2), 4)\n"}, {}),
        ({"functional": "from unittest import TestCase\nclass T(TestCase):\n    def test(self):\n        assert square(2) == 4\n"}, {}),
        ({"solution_file": "from solution import square\ndef test_square():\n    assert square(2) == 4\n"}, {}),
        ({"solution_file": "import solution\nif solution.square(2) != 4:\n    raise SystemExit(1)"}, {}),
        ({"functional": "for n in range(2, 5):\n    assert square(n) == n ** 2"}, {}),
        ({"functional": "try:\n    assert square(2) == 4\nfinally:\n    pass"}, {}),
    ],
)  # fmt: skip
def test_tests_that_are_defined_are_run(router, truth, info):
    programs = (SQUARE, ZERO, "x = 1", "def square(n):\n    pass")
    right, *wrong = grade_all(router, [(program, truth) for program in programs], **info)
    assert right.correct and [(r.correct, r.error) for r in wrong] == [(False, None)] * 3, (right, wrong)


@pytest.mark.parametrize(
    "truth",
    [
        {"functional": "print(square(2) == 4)"}, {"functional": "def helper():\n    assert square(2) == 4"},
        {"functional": "square(2)"}, {"functional": "def check(candidate):\n    candidate(2)"},
        {"functional": "import unittest\nclass T(unittest.TestCase):\n    def helper(self):\n        pass"},
        {"solution_file": "from solution import square"}, {"pytest": "from solution import square\nassert True"},
        {"pytest": "from solution import square\ndef helper():\n    assert square(2) == 4"},
        {"pytest": "from solution import square\ndef test_square():\n    square(2)"}, {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": []}, {"functional": " "}, {"functional": "assert ("},
    ],
)  # fmt: skip
def test_test_code_that_tests_nothing_is_an_error_of_the_row(router, truth):
    for program in (SQUARE, ZERO):
        reward = grade(router, program, truth)
        assert reward.correct is None and reward.error, reward


def test_a_program_that_keeps_the_tests_from_asserting_is_wrong_and_no_error(router):
    for tests in ("for x in squares():\n    assert x == 4", "if squares():\n    assert squares() == [4]"):
        reward = grade(router, "def squares(): return []", {"functional": tests})
        assert (reward.correct, reward.error) == (False, None)
        assert reward.parts["reason"] == "no assertion was reached"


def test_an_error_that_a_program_raises_is_named_as_it_is(router):
    reasons = {"return 1": "Syntax", "import nonsense": "ModuleNotFound", "1 / 0": "ZeroDivision"}
    for (program, reason), truth in product(reasons.items(), (TRUTHS["equality"], TRUTHS["calls"])):
        assert grade(router, program, truth).parts["reason"].startswith(f"{reason}Error")


def test_each_test_has_a_limit_of_its_own_and_all_have_a_total():
    slow, inputs = "import time\nx = int(input())\ntime.sleep(0.4)\nprint(2 * x)", [str(i) for i in range(5)]
    stdin = {"inputs": inputs, "outputs": [str(2 * i) for i in range(5)]}
    function = "import time\ndef double(x):\n    time.sleep(0.4)\n    return 2 * x"
    tests = {"functional": "\n".join(f"assert double({i}) == {2 * i}" for i in range(5))}
    calls = {"fn_name": "double", "inputs": inputs, "outputs": stdin["outputs"]}
    rows = [(slow, stdin), (function, tests), (function, calls)]
    forever, asleep = "def double(x):\n    while True: pass", "import time\ndef double(x): time.sleep(99)"
    endless = [*product((forever, asleep), (tests, calls)), ("while True: pass", stdin)]
    with Router(RewardConfig(num_workers=4, timeout=1.5, total_timeout=20)) as router:
        assert [reward.correct for reward in grade_all(router, rows)] == [True] * 3
        assert [reward.parts["reason"] for reward in grade_all(router, endless)] == ["time"] * 5
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
