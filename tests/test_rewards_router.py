"""The router: order, deadlines, crashes, call contexts and bad input."""

import asyncio
import base64
import gzip
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from cases import DATA, records, table
from waiting import wait_for

import rlkit
from rlkit.config import OverlongBuffer, RewardConfig
from rlkit.domains.grading import Grading
from rlkit.errors import UserError
from rlkit.rewards import Router, grading_metrics, isolation, scorer_of
from rlkit.rewards.grading import grade, with_overlong_penalty
from rlkit.rewards.worker import Worker
from rlkit.sandbox import programs
from rlkit.sandbox.plain import Channel
from rlkit.types import Reward, Task

TOWER = ("math__x", r"\boxed{9^{9^{9^9}}}", "1", None)


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=2, timeout=5)) as router:
        yield router


@pytest.fixture(scope="module")
def custom_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("custom") / "custom.py"
    path.write_text((DATA / "custom_reward.txt").read_text())
    return path


def own(custom_file, **options) -> Router:
    """A router of the functions above, with a worker unless more are asked for."""
    function = f"{custom_file}:compute_score"
    return Router(RewardConfig(**{"num_workers": 1, "custom_reward_function": function, **options}))


@pytest.fixture
def custom(custom_file):
    with own(custom_file, num_workers=2, timeout=0.5) as router:
        yield router


@pytest.fixture
def mark():
    """A file that a custom function makes, which is nobody."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder, "mark")


def rows(*answers, truth="right"):
    return [("any", answer, str(truth), None) for answer in answers]


def test_rewards_come_back_in_the_order_of_the_answers(router):
    tasks = [Task.ask("math__arithmetic", "q", str(i)) for i in range(700)]
    rewards = router.grade((task, str(i if i % 3 else i + 1)) for i, task in enumerate(tasks))
    assert [(r.correct, r.value) for r in rewards] == [(bool(i % 3), float(bool(i % 3))) for i in range(700)]
    assert router.grade([]) == []


@pytest.mark.parametrize(*table("rewards_meddling"))
def test_an_answer_that_hangs_dies_or_meddles_loses_itself_and_no_other(custom, about, texts, correct):
    custom.grade_rows(rows(*["right"] * 400))  # from here on answers are known to be quick
    rewards = custom.grade_rows(rows(*texts))
    assert [r.correct for r in rewards] == correct
    for text, reward in zip(texts, rewards, strict=True):
        assert (reward.parts.get("killed") == "deadline") == (text in ("hang", "slow"))
        assert ("died" in (reward.error or "") and reward.value is None) == (text == "die")
    assert all(r.correct for r in custom.grade_rows(rows(*["right"] * 400)))


FORGED = [*(case["message"] for case in records("forged_outcomes")), "[" * 100_000]


@pytest.mark.parametrize("message", FORGED, ids=lambda text: text[:20])
def test_each_answer_has_one_outcome_whatever_a_worker_sends(custom_file, message):
    with own(custom_file, timeout=1) as router:
        assert len(router.grade_rows(rows("right", "say " + message, "right"))) == 3
        assert [r.correct for r in router.grade_rows(rows("right", "wrong", "right"))] == [True, False, True]


def test_slow_answers_are_spread_over_the_workers_and_one_that_has_grown_too_big_is_replaced(custom_file):
    with own(custom_file, num_workers=4) as router:
        rewards = router.grade_rows(rows(*["pid"] * 68))
    assert len({r.parts["pid"] for r in rewards[8:]}) == 4
    with own(custom_file) as router:
        before, *grown = router.grade_rows(rows("pid", "right", "grow", "right"))
        after, last = router.grade_rows(rows("pid", "right"))
    assert [r.error for r in (*grown, after, last)] == [None] * 5
    assert after.parts["pid"] != before.parts["pid"]


def test_an_iterator_that_fails_leaves_no_answers_behind(custom, mark):
    with pytest.raises(ZeroDivisionError):
        custom.grade_rows(row if k < 64 else 1 // 0 for k, row in enumerate(rows(*["right"] * 65, truth=mark)))
    assert [r.correct for r in custom.grade_rows(rows("right", "wrong"))] == [True, False] and not mark.exists()


def test_a_killed_worker_is_replaced_and_parts_without_a_json_form_are_said_to_have_none(custom):
    first = custom.grade_rows(rows(*["pid"] * 8))
    for pid in {r.parts["pid"] for r in first}:
        os.kill(pid, signal.SIGKILL)
    rewards = custom.grade_rows(rows(*["right"] * 40))
    assert sum(r.error is not None for r in rewards) <= 2  # at most what the two workers were given
    assert all(r.correct for r in custom.grade_rows(rows(*["right"] * 40)))
    custom.grade_rows(rows(*["right"] * 400))
    rewards = custom.grade_rows(rows(*["right"] * 20, "odd", *["right"] * 20))
    assert [r.error for r in rewards] == [None] * 41
    assert rewards[20].parts == {"parts": "they have no JSON form"}


SLEEPS = ("codegen__x", "```python\nimport time\ntime.sleep(1)\nprint(input())\n```",
          {"inputs": ["1"], "outputs": ["1"]}, None)  # fmt: skip


def busy_worker(known):
    """The process of a worker that has a sandbox, of a router that is not `known`."""
    found = []

    def look():
        for worker in [w for server in psutil.Process().children() for w in server.children()]:
            with suppress(psutil.Error):
                if worker.pid not in known and "rlkit.rewards" in str(worker.cmdline()) and worker.children():
                    found.append(worker)
        return found

    wait_for(look)
    known.add(found[0].pid)
    return found[0]


@pytest.mark.parametrize(("sent", "correct"), [(signal.SIGKILL, None), (signal.SIGSEGV, False)])
def test_an_answer_is_wrong_if_it_crashes_two_workers_and_an_error_if_the_machine_ends_them(sent, correct):
    known = {p.pid for p in psutil.Process().children(recursive=True)}
    with Router(RewardConfig(num_workers=1, timeout=10)) as router:
        call = router.submit([SLEEPS, ("math__x", "3", "3", None)])
        for _ in range(2):
            os.kill(busy_worker(known).pid, sent)
        (reward, _), (other, _) = call
    assert (reward.correct, other.correct) == (correct, True)
    assert ("died" in (reward.error or "")) == (correct is None)


def test_a_closed_router_has_ended_its_workers_and_what_waits_and_refuses_what_comes_later(custom_file, mark):
    router = own(custom_file)
    [reward] = router.grade_rows(rows("pid"))
    call = router.submit(rows("slow", "right", "right", truth=mark))
    wait_for(mark.exists)
    router.close()
    router.close()
    assert all(reward.error for reward, _ in call)
    wait_for(lambda: ended(reward.parts["pid"]))
    with pytest.raises(RuntimeError, match="closed"):
        router.grade_rows(rows("right"))


def test_a_killed_fork_server_is_replaced(custom_file):
    with own(custom_file) as router:
        [before] = router.grade_rows(rows("pid"))
        os.kill(before.parts["parent"], signal.SIGKILL)
        os.kill(before.parts["pid"], signal.SIGKILL)
        [after] = router.grade_rows(rows("pid"))
        assert after.correct and after.parts["parent"] != before.parts["parent"]


def test_a_reward_function_whose_file_ends_the_process_is_an_error(tmp_path):
    (path := tmp_path / "ends.py").write_text("import os\nos._exit(3)\n")
    with Router(RewardConfig(num_workers=1, custom_reward_function=f"{path}:score")) as router:
        assert "No grading process can be started" in (router.grade_rows(rows("right"))[0].error or "")


def test_an_answer_has_its_time_also_where_that_is_more_than_the_tests_of_a_program_have(monkeypatch):
    now, ends = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    server: Any = SimpleNamespace(numbers=count(), ask=lambda number, *ours: ends.extend(map(os.dup, ours)))
    worker = Worker(server, RewardConfig(timeout=500, total_timeout=1))
    theirs = Channel(socket.socket(fileno=ends[0]))
    for now[0] in (0.0, 400.0, 800.0):
        theirs.send(0, 500.0)
        assert worker.outcomes() == []
    worker.close()
    theirs.sock.close()
    os.close(ends[1])


def ended(pid) -> bool:
    """Also one that nobody has reaped yet."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    return True


def test_a_hanging_worker_and_the_fork_server_die_with_a_killed_trainer(custom_file, mark):
    code = (DATA / "killed_trainer.txt").read_text()
    code = code.replace("CUSTOM_FILE", str(custom_file)).replace("MARK_FILE", str(mark))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
    assert len(pids) == 2
    wait_for(lambda: all(map(ended, pids)))


def test_a_script_without_a_main_guard_is_run_once_wherever_temporary_files_are(tmp_path):
    script = (DATA / "script_without_a_guard.txt").read_text()
    (path := tmp_path / "script.py").write_text(script)
    (long := tmp_path / ("x" * 100)).mkdir()
    environment = {**os.environ, "TMPDIR": str(long)}
    for command in ([str(path)], ["-c", script]):
        command = [sys.executable, *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.stdout.split() == ["begun", "True"], done.stderr


def test_a_custom_function_has_no_variable_of_a_secret_and_is_nobody(custom_file, monkeypatch):
    ours = {name: "hush" for name in ("WANDB_API_KEY", "PYTHON_DEPLOY_TOKEN", "LC_API_KEY")}
    # By the last, answers that are read as Python would fail.
    ours |= {"HTTPS_PROXY": "http://me:hush@proxy:80", "PYTHONWARNINGS": "error"}
    for name, value in {**ours, "LD_LIBRARY_PATH": "/opt/python@3/lib"}.items():
        monkeypatch.setenv(name, value)
    with own(custom_file) as router:
        [reward] = router.grade_rows(rows("who"))
    assert not set(ours) & set(reward.parts["variables"])
    assert {"PATH", "LD_LIBRARY_PATH"} <= set(reward.parts["variables"]) and not reward.parts["shown"]
    assert reward.parts["user"] == (os.geteuid() or 65534)


def test_a_run_says_whose_rights_a_custom_function_has(custom_file, monkeypatch):
    config = RewardConfig(custom_reward_function=f"{custom_file}:compute_score")
    said = {0: "outside the sandbox as nobody", 1000: "as you, and can read your files and your"}
    for user, words in said.items():
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert words in (isolation(config) or "")
    assert isolation(RewardConfig()) is None


def test_all_call_contexts_give_the_same(router):
    """Many scorers work on the main thread alone: signals do."""
    batch = [("math__x", r"\boxed{\frac{x^2-1}{x-1}}", "x+1", None), TOWER]
    batch += [("logic__graph_logical_dataset", "<answer>\nAda\n</answer>", "ada", None)]
    batch += [("math__x", str(i), "7", None) for i in range(20)]
    here = router.grade_rows(batch)
    with ThreadPoolExecutor(6) as pool:
        assert all(found == here for found in pool.map(router.grade_rows, [batch] * 6))
    tasks = [(Task.ask(s, "q", t), a) for s, a, t, _ in batch]
    assert here == asyncio.run(asyncio.to_thread(router.grade, tasks))
    assert [i for i, r in enumerate(here) if r.correct] == [0, 2, 10]


def test_a_row_of_a_wrong_type_is_an_error_with_its_reason(router):
    """Those that JSON can say are in tests/data/verdicts/errors.jsonl."""
    wrong = {"NoneType": (None, "1"), "bytes": (b"1", "1"), "no JSON form": ("1", object())}
    rewards = router.grade_rows([("math__x", *row, None) for row in wrong.values()])
    assert all(r.value is r.correct is None and why in r.error for why, r in zip(wrong, rewards, strict=True))


def test_compressed_and_numpy_truths_are_read():
    packed = base64.b64encode(gzip.compress(json.dumps([[4, 2]]).encode())).decode()
    info = base64.b64encode(gzip.compress(b'{"index": 3}')).decode()
    parts = {"part_1": info[:7], "part_2": info[7:], "part_3": None}
    for truth, extra in (({"compressed": packed}, parts), (np.array([[4, 2]]), {"index": np.int64(3)})):
        assert rlkit.score("simulation__arcagi1", "<answer>[[4, 2]]</answer>", truth, extra).correct


def test_a_forked_process_is_told_to_make_its_own_router_and_leaves_the_parents_alone(router):
    assert router.grade_rows([("math__x", "1", "1", None)])[0].correct  # its threads run, here alone

    def child(parent: int) -> None:
        words = f"in process {parent}, and process {os.getpid()} is a fork of it: make a Router"
        with pytest.raises(RuntimeError, match=words):
            router.grade_rows([("math__x", "1", "1", None)])
        router.close()
        with Router(router.config) as own:
            assert own.grade_rows([("math__x", "1", "1", None)])[0].correct

    process = multiprocessing.get_context("fork").Process(target=child, args=(os.getpid(),), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert router.grade_rows([("math__x", "1", "1", None)])[0].correct


def test_the_version_of_a_reward_function_is_its_files(tmp_path):
    def version(name):
        return scorer_of(RewardConfig(custom_reward_function=name))["scorer_version"]

    versions = []
    for text in ("score = print", "score = print  # another"):
        (file := tmp_path / f"own{len(versions)}.py").write_text(text)
        versions.append(version(f"{file}:score"))
    assert len(set(versions)) == 2 and all(len(v) == 12 for v in versions)
    assert len(version("json:loads")) == 12
    assert version("time:sleep") == "unknown"  # built in


def test_what_a_reward_function_may_return(custom_file):
    bad = ["None", "list", "tuple", "reward", "text", "nan", "nested"]
    with own(custom_file, custom_reward_function=f"{custom_file}:returns") as router:
        *refused, raised, number, mapping = router.grade_rows(rows(*bad, "raise", "number", "dict"))
    assert all("return a finite number, or a dict with score" in (r.error or "") for r in refused)
    assert "ValueError: no service" in (raised.error or "")  # of a function that may have asked a service
    assert (number.value, number.correct) == (1.0, True) and (mapping.value, mapping.correct) == (0.5, True)
    named = (RewardConfig(custom_reward_function=f"{custom_file}:{name}") for name in ("later", "absent"))
    later, absent = (grade("any", "x", "right", {}, Grading(config)) for config in named)
    assert later.value == 0.25 and "absent" in (absent.error or "")


@pytest.mark.parametrize(*table("rewards_format_is_a_weighted_part"))
def test_the_format_is_a_weighted_part_of_what_trains_and_not_of_what_is_reported(form, response, has):
    config = RewardConfig(format_weight=0.25, format=form)
    reward = grade("math__x", response, "7", {}, Grading(config))
    assert reward.correct is not None
    assert reward.parts["format"] == has and reward.parts["verdict"] == float(reward.correct)
    assert reward.value == 0.75 * float(reward.correct) + 0.25 * has


def test_an_exception_of_a_scorer_is_a_wrong_answer_and_counted(monkeypatch):
    errors = {"odd": OverflowError, "deep": RecursionError, "big": MemoryError, "truth": UserError}

    def broken(response, ground_truth, extra_info):
        raise errors[response]("so")

    monkeypatch.setattr("rlkit.rewards.grading.resolve", lambda name: broken)
    odd, deep, big, truth = (grade("x", text, "7", {}) for text in errors)
    assert [r.correct for r in (odd, deep, big, truth)] == [False, False, False, None]
    assert odd.parts["exception"].startswith("OverflowError: so (test_rewards_router.py")
    late = Reward.of(False, reason="time")
    shares = {"reward/killed": 0.4, "reward/timeouts": 0.2, "reward/grader_exceptions": 0.2}
    assert grading_metrics([odd, deep, big, truth, late]) == shares


def test_a_scorer_that_fails_is_an_error_unless_the_answer_ended_it(monkeypatch):
    info = {"entry": {"answer": "1+2", "metadata": {"source_dataset": "countdown"}}}
    row = ("reasoning_gym__countdown", "<answer>1+2</answer>", "1+2", info)
    for error in ("time", "memory", "exit: it ended", "ImportError: sympy"):
        monkeypatch.setattr(programs, "call_function", lambda *_, e=error, **__: [programs.Call(error=e)])
        reward = grade(*row, Grading(RewardConfig()))
        assert reward.correct is (None if "Import" in error else False), error
        assert reward.correct is False or error in (reward.error or "")


def test_an_answer_loses_reward_for_the_tokens_that_it_goes_into_the_buffer():
    buffer = OverlongBuffer(enable=True, len=4, penalty_factor=0.5)
    lost = [1 - (with_overlong_penalty(Reward.of(True), n, 10, buffer).value or 0) for n in (3, 6, 7, 10)]
    assert lost == pytest.approx([0, 0, 0.125, 0.5])
    failed = Reward(error="the worker was killed")
    assert with_overlong_penalty(Reward.of(True), 10, 10, buffer).correct
    assert with_overlong_penalty(failed, 10, 10, buffer) is failed
    assert with_overlong_penalty(Reward.of(True), 10, 10, OverlongBuffer()).value == 1
