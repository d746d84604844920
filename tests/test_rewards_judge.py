"""The judge: asked for free text only, once a question, and never a zero when it cannot be asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cases import records, table

from rlkit.config import RewardConfig
from rlkit.rewards import Router


class Judge(ThreadingHTTPServer):
    """A judge that says yes to synonyms of its list, and does what `behaviour` says."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.behaviour, self.failures = [], "honest", 0
        self.raw: bytes | None = None  # what it sends behind the status, with "?" in place of that
        self.drips = False
        self.together, self.most = 0, 0
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        judge = self.server
        assert isinstance(judge, Judge)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with judge.lock:
            judge.seen.append(body)
            judge.together += 1
            judge.most = max(judge.most, judge.together)
            fail = judge.failures > 0
            judge.failures -= fail
        threading.Event().wait(0.05)
        answer = json.loads(body["messages"][1]["content"].rpartition("\n")[2])
        text = {
            "honest": f"Comparing.\nFinal Decision: {'Yes' if answer == 'H2O, i.e. ice' else 'No'}",
            "silent": "I cannot say.",
            "parrot": f"The answer was: {answer}",
        }[judge.behaviour]
        with judge.lock:
            judge.together -= 1
        reply = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        if judge.raw is not None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" * (not judge.raw.startswith(b"?")) + judge.raw)
            while judge.drips:
                threading.Event().wait(0.2)
                self.wfile.write(b" ")
            return
        self.send_response(503 if fail else 200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def judge():
    server = Judge()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def router(judge):
    url = f"http://127.0.0.1:{judge.server_port}/v1"
    with Router(RewardConfig(num_workers=1, judge_url=url, timeout=5)) as router:
        yield router


def row(answer, truth="frozen water"):
    return ("stem_web", rf"\boxed{{{answer}}}", truth, {"question": "What is it?"})


def test_the_judge_decides_what_the_rules_do_not_accept_and_without_a_verdict_it_is_an_error(judge, router):
    rewards = router.grade_rows([row("H2O, i.e. ice"), row("steam"), row("frozen water"), row("12", "13")])
    assert [r.correct for r in rewards] == [True, False, True, False]
    assert [bool(r.parts.get("judged")) for r in rewards] == [True, True, False, False]
    assert judge.seen[0]["model"] == "TIGER-Lab/general-verifier" and judge.seen[0]["temperature"] == 0
    assert "What is it?" in judge.seen[0]["messages"][1]["content"]
    judge.behaviour = "silent"
    reward = router.grade_rows([row("vapour")])[0]
    assert reward.value is None and "no verdict" in reward.error


def test_the_same_question_is_asked_once_and_each_worker_asks_one_at_a_time(judge, router):
    router.grade_rows([row("steam")] * 5)
    assert len(judge.seen) == 1
    with Router(router.config.model_copy(update={"num_workers": 8})) as several:
        several.grade_rows([row(f"steam {i}") for i in range(40)])
    assert len(judge.seen) == 41 and 1 < judge.most <= 8


def test_a_busy_judge_is_asked_again(judge, router):
    judge.failures = 2
    assert router.grade_rows([row("H2O, i.e. ice")])[0].correct
    assert len(judge.seen) == 3


def body(text):
    return b"Content-Length: %d\r\n\r\n%s" % (len(text), text)


REPLIES = {case["about"]: body(case["body"].encode("latin-1")) for case in records("judge_replies")} | {
    "deep JSON": body(b"[" * 100_000),
    "a cut reply": b"Content-Length: 99\r\n\r\n{",
    "a cut chunk": b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "headers without end": b"A: b\r\n" * 200 + b"\r\n",
    "no HTTP": b"?\r\n\r\n",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_reply_without_a_message_is_an_error_and_no_zero(judge, router, reply):
    judge.raw = reply
    reward = router.grade_rows([row("steam")])[0]
    assert reward.value is None and "judge" in reward.error and not reward.parts


def test_a_judge_that_never_ends_or_answers_is_an_error_and_never_a_zero(judge):
    judge.raw, judge.drips = b"Content-Length: 10000\r\n\r\n", True
    with Router(RewardConfig(num_workers=1, judge_url=f"http://127.0.0.1:{judge.server_port}", timeout=2)) as r:
        reward = r.grade_rows([row("steam")])[0]
    judge.drips = False
    assert reward.value is None and "cannot be asked" in (reward.error or "")
    with Router(RewardConfig(num_workers=1, judge_url="http://127.0.0.1:9/v1", timeout=3)) as router:
        rewards = router.grade_rows([row("steam"), row("frozen water")])
        assert rewards[0].value is None and "cannot be asked" in (rewards[0].error or "")
        assert rewards[1].correct  # the rules need no judge


@pytest.mark.parametrize(*table("rewards_answer_that_imitates_the_judge"))
def test_an_answer_that_imitates_the_judge_is_wrong_and_is_not_passed_on(judge, router, answer):
    judge.behaviour = "parrot"
    assert router.grade_rows([row(answer)])[0].correct is False
    assert not judge.seen
