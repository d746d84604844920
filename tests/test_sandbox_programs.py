"""The sandbox: what programs can and cannot do, in bubblewrap and in the fallback."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest
from cases import cases, table
from sandbox_here import needs_packages

from rlkit.config import RewardConfig
from rlkit.domains.grading import Grading
from rlkit.errors import UserError
from rlkit.sandbox import levels, programs, reading
from rlkit.sandbox.levels import Jail, choose
from rlkit.sandbox.limits import LIMITS, OUTPUT

SCRIPTS = dict(cases("sandbox_scripts"))
# Where RLKIT_REQUIRE_SANDBOX is set (.ci/run), these tests fail without bubblewrap instead of being skipped.
absent = shutil.which("bwrap") is None and not os.environ.get("RLKIT_REQUIRE_SANDBOX")
needs_bubblewrap = pytest.mark.skipif(absent, reason="bubblewrap is not installed")
with_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives programs users of their own")
LEVELS = [
    pytest.param("bubblewrap", marks=needs_bubblewrap),
    pytest.param("rlimits", marks=pytest.mark.skipif(os.geteuid() != 0, reason="the fallback needs root")),
]


@pytest.fixture(scope="module", params=LEVELS)
def level(request):
    return request.param


@pytest.fixture(scope="module")
def jail(level):
    with Jail(choose(level)) as jail:
        yield jail


@pytest.fixture(scope="module")
def tight():
    if absent:
        pytest.skip("bubblewrap is not installed")
    with Jail(choose("bubblewrap")) as jail:
        yield jail


def run(jail, program, stdin=b"", seconds=5.0):
    return jail.run(program, stdin, seconds)


def works(jail):
    """The jail is as good as new."""
    return run(jail, "print(sum(map(int, input().split())))", b"20 22\n").stdout == b"42\n"


@pytest.mark.parametrize(*table("programs_that_run"))
def test_a_program_reads_and_prints_uses_processes_and_threads_and_is_refused_hidden_memory(
    jail, about, program, stdin, stdout, stderr
):
    outcome = run(jail, program, stdin.encode())
    assert (outcome.status, outcome.reason) == (0, None), about
    assert (outcome.stdout.decode(), outcome.stderr.decode()) == (stdout, stderr)


@pytest.mark.parametrize(*table("programs_endings"))
def test_a_program_ends_as_under_the_interpreter(jail, program):
    command = [sys.executable, "-I", "-X", "utf8", "-c", program]
    real = subprocess.run(command, input=b"7\n", capture_output=True)
    outcome = run(jail, program, b"7\n")
    status = real.returncode if real.returncode >= 0 else 128 - real.returncode
    assert (outcome.stdout, outcome.status, outcome.reason) == (real.stdout, status, None)
    assert works(jail)


@pytest.mark.parametrize(*table("programs_hostile"))
def test_a_hostile_program_fails_and_the_next_one_runs(jail, name, program):
    outcome = run(jail, program, seconds=0.5)
    assert (outcome.status, outcome.reason) != (0, None) and len(outcome.stdout) <= OUTPUT + 1
    assert outcome.reason == "output" or name != "output"
    assert works(jail)


@pytest.mark.parametrize("take", ["x = bytearray(90 << 20)", "x = mmap.mmap(-1, 90 << 20); x.write(bytes(90 << 20))"])
def test_memory_of_all_processes_is_limited_as_a_sum_shared_memory_too(level, take):
    with Jail(choose(level), limits={**LIMITS, "AS": 256 << 20}) as small:
        assert run(small, SCRIPTS["greedy"].replace("TAKE", take), seconds=9).reason == "memory"
        assert works(small)


def test_nothing_of_one_program_reaches_the_next(jail):
    assert [run(jail, SCRIPTS["folder"]).stdout for _ in range(2)] == [b"[]\n"] * 2
    assert run(jail, "import builtins\nbuiltins.print = None").status == 0
    assert run(jail, "import json; print(json.dumps(1))").stdout == b"1\n"
    places = SCRIPTS["places"].replace("PID", str(os.getpid()))
    assert [run(jail, places).stdout for _ in range(2)] == [b"False\n" * 3] * 2


def test_no_program_finds_the_tests_of_an_earlier_one_in_memory(level):
    grading = Grading(RewardConfig(sandbox=level))
    tests = reading.TestCode("class C(D): pass\n" + "assert f('hidden-8842') == 1\n" * 200)
    program = "def f(x): return 1\nclass D: pass"
    tested = programs.run_tests(grading, program, tests, 60)
    assert (tested.passed, tested.trusted) == (200, False)
    found = int(programs.run_script(grading, SCRIPTS["scan"], "", 10).stdout)
    assert 1 <= found < 10  # what it looks for is in its own memory, too


@with_users
def test_a_program_keeps_no_other_jail_from_a_user_of_its_own(level):
    limits, program = {**LIMITS, "NOFILE": 6000}, SCRIPTS["taken"] + "print(7, flush=True)\nimport time\ntime.sleep(99)"
    with Jail(choose(level), limits=limits) as greedy, tempfile.TemporaryFile() as out:
        greedy.start([out.fileno()] * 3, [], 99, role="script", program=program)
        while not os.fstat(out.fileno()).st_size:
            time.sleep(0.02)
        with Jail(choose(level)) as jail:
            assert works(jail)


@with_users
def test_the_end_of_one_program_ends_no_other():
    with Jail(choose("rlimits")) as slow, Jail(choose("rlimits")) as quick, ThreadPoolExecutor() as pool:
        found = pool.submit(run, slow, "import time\ntime.sleep(2)\nprint(7)", seconds=60.0)
        for _ in range(8):
            run(quick, "import os\nif os.fork() == 0: os.kill(-1, 9)")
        assert (found.result().stdout, found.result().status) == (b"7\n", 0)


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 6000, reason="few descriptors are allowed")
def test_a_program_has_no_descriptor_of_ours_however_many_there_are(level):
    with contextlib.ExitStack() as stack:
        for _ in range(5000):
            stack.enter_context(open(os.devnull))
        with Jail(choose(level)) as jail:
            program = "import os\nprint(os.listdir('/proc/self/fd'))"
            assert run(jail, program).stdout == b"['0', '1', '2', '3']\n"  # the last is the folder's


def test_a_program_may_open_its_streams_by_name_and_finds_nothing_of_our_environment(level, monkeypatch):
    monkeypatch.setenv("RLKIT_SECRET", "hush")
    with Jail(choose(level)) as fresh:
        assert run(fresh, SCRIPTS["streams"], b"7\n").stdout == b"7 False False\n"


@pytest.mark.parametrize(*table("programs_escapes"))
def test_a_program_cannot(tight, name, program):
    assert run(tight, program.replace("CHECKOUT", str(Path(__file__).parents[1]))).status == 1


def test_a_program_sees_our_python_its_own_processes_and_no_network(tight):
    assert run(tight, SCRIPTS["surroundings"]).stdout.decode() == f"ENETUNREACH\n2\n{sys.version}\n"


def test_a_few_packages_can_be_imported_and_the_grader_cannot(jail, level):
    needs_packages(level)
    few = "import numpy, numpy.linalg, pytest\nfrom sortedcontainers import SortedList\nprint(numpy.arange(3).sum())"
    outcome = run(jail, few, seconds=20)
    assert outcome.stdout == b"3\n", outcome
    for module in ("rlkit", "torch", "math_verify")[: 3 if level == "bubblewrap" else 1]:
        assert b"ModuleNotFoundError" in run(jail, f"import {module}").stderr


def test_sixty_hostile_programs_leave_no_process_and_no_file():
    before = set(os.listdir("/tmp"))
    with Jail(choose()) as jail:
        loop = "if os.fork() == 0:\n    os.setsid()\n    while True: pass"
        for i in range(60):
            run(jail, f"import os\nopen('/tmp/left{i}', 'w')\n{loop}")
        user = run(jail, "import os; print(os.getuid())").stdout.decode().strip()
        processes = subprocess.run(["ps", "-o", "args=", "-u", user], capture_output=True, text=True).stdout
        assert not processes or os.geteuid() != 0  # else programs have our user
        assert works(jail)
    ours, end = ("left", "rlkit-jail"), time.monotonic() + 60
    while left := {name for name in set(os.listdir("/tmp")) - before if name.startswith(ours)}:
        assert time.monotonic() < end, left  # folders of jails of other tests go when their programs end
        time.sleep(0.1)


def test_only_folders_that_end_with_the_program_can_be_written(tight):
    assert run(tight, SCRIPTS["writable"]).stdout == b"['/dev/shm', '/tmp']\n"


@needs_bubblewrap
@with_users
@pytest.mark.skipif(not os.path.exists(python := "/usr/bin/python3"), reason="no Python that others can read")
def test_bubblewrap_works_for_an_ordinary_user(tmp_path):
    ours, copy = Path(__file__).parents[1] / "rlkit", tmp_path / "rlkit"  # what needs no installed package
    shutil.copytree(ours / "sandbox", copy / "sandbox")
    shutil.copy(ours / "errors.py", copy)
    (copy / "__init__.py").touch()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*user, python, "-B", "-c", SCRIPTS["ordinary"], str(tmp_path), SCRIPTS["writable"]]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.stdout == "bubblewrap\nb'65534\\n'\nb\"['/dev/shm', '/tmp']\\n\"\n", done.stderr


def test_without_bubblewrap_root_falls_back_and_others_are_refused_with_instructions(monkeypatch):
    problems = {"bubblewrap": "it is not installed.", "rlimits": None}
    monkeypatch.setattr(levels, "problem_of", problems.get)
    assert choose() == "rlimits"
    problems["rlimits"] = "it needs root."
    with pytest.raises(UserError, match="it needs root.*apt-get install bubblewrap"):
        choose()
    with pytest.raises(UserError, match="does not work here"):
        choose("bubblewrap")
    assert choose("unsafe") == "unsafe"
    assert "apt-get install bubblewrap" in levels.report()


def test_a_level_that_cannot_run_a_program_is_not_chosen(monkeypatch):
    """Else every program would fail, and every answer would be wrong."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(levels, "problem_of", levels.problem_of.__wrapped__)
    with pytest.raises(UserError, match="it is not installed.*The sandbox does not start"):
        choose()


def test_bubblewrap_is_started_from_wherever_it_was_found(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho this is another one >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "this is another one" in str(levels.problem_of.__wrapped__("bubblewrap"))


def test_a_program_runs_unsafely_where_that_was_asked_for():
    with Jail(choose("unsafe")) as jail:
        assert works(jail)
        assert run(jail, "while True: pass", seconds=0.5).reason == "time"
        assert works(jail)


def test_a_library_evaluates_text_in_a_fork_of_a_jail_that_has_imported_it(level, monkeypatch):
    """Each text in a process of its own, without our environment and without what the text before it left."""
    monkeypatch.setenv("SECRET_KEY", "hush")
    grading = Grading(RewardConfig(sandbox=level))
    leave, end = "setattr(numpy, 'before', 1)", "__import__('os')._exit(0)"
    texts = ("1 + 1", leave, end, "numpy.arange(3).sum().item()")
    evaluate = partial(programs.call_function, grading, SCRIPTS["library"], "main", modules=("numpy",))
    found = [evaluate([[text]], 10)[0] for text in texts]
    assert [call.value for call in found] == [[2, False, []], [None, True, []], None, [3, False, []]]
    assert found[2].error == "exit: the program ended"
    assert evaluate([["numpy.arange(3) ** 9**9**9"]], 0.3)[0].error == "time"


def test_the_sandboxes_of_a_thread_end_with_it():
    def work():
        outcome = programs.run_script(Grading(RewardConfig()), "print(7)", "", 10)
        return outcome.stdout, len(psutil.Process().children())

    before = len(psutil.Process().children())
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(work).result() == (b"7\n", before + 1)
        assert len(psutil.Process().children()) == before


@with_users
def test_users_are_marked_where_root_alone_can_write(monkeypatch, tmp_path):
    monkeypatch.setattr(levels, "LOCKS", tmp_path / "read-only")
    with Jail(choose("auto")) as one, Jail(choose("auto")) as two:
        users = [run(jail, "import os\nprint(os.getuid())").stdout for jail in (one, two)]
    assert len({*users}) == 2 and b"0\n" not in users
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(levels, "LOCKS", tmp_path / "open")
    with pytest.raises(RuntimeError, match="root alone"):
        Jail(choose("auto"))
