"""The server: answers, limits, errors as JSON, shared sampler calls, clients that leave."""

import asyncio
import threading
from typing import Any

import httpx
import numpy as np
import pytest
from cases import cases

from rlkit.config import Model
from rlkit.environments import BaseEnvironment, environments
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.models.loading import load_policy
from rlkit.serving.http import Settings, create_app
from rlkit.serving.http import serve as run_server
from rlkit.types import Sample

GOOD = {"domain": "mathematics", "problem": "3x + 7 = 16"}


class ExpertSampler:
    """Answers a prompt as the expert would, by reading the last equation out of it; can be held back."""

    def __init__(self, policy) -> None:
        self.policy, self.batches, self.lengths = policy, [], set()
        self.called, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def sample(self, prompts, n, *, seed, max_tokens, **_):
        self.called.set()
        self.gate.wait(30)
        self.batches.append(len(prompts))
        self.lengths.add(max_tokens)
        return [[self.say(self.policy.tokenizer.decode(ids))] for ids in prompts]

    def say(self, chat: str) -> Sample:
        env = Mathematics()
        shown = [line for line in chat.replace("<|im_end|>", "\n").split("\n") if "=" in line]
        env.reset(shown[-1].removeprefix("Yes. "))
        action, params = env.expert()  # of a fresh episode: it identifies first
        if len(shown) > 1:
            action, value = env.expert_move()
            params = {"value": value}
        text = self.policy.tokenizer.encode(env.format_action(action, params))
        ids = np.array([*text, *self.policy.stop_ids[:1]])
        return Sample(ids, np.full(len(ids), -0.1, np.float32), "stop")

    def sync(self, policy) -> None: ...

    def release(self) -> None: ...


@pytest.fixture(scope="module")
def policy():
    return load_policy(Model.model_validate({"path": "ladder-30k"}))


def serve(policy, go, domains: dict[str, BaseEnvironment] | None = None, **limits) -> Any:
    """What `go(sampler, solver, client)` returns, with a scripted sampler and a client of an app."""
    sampler, domains = ExpertSampler(policy), domains or {"mathematics": Mathematics(instructions="brief")}
    app = create_app(policy, domains, sampler, Settings(**limits))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://test")
    return asyncio.run(asyncio.wait_for(go(sampler, app.state.solver, client), 60))


def posted(policy, *requests: dict[str, Any], **limits) -> list[httpx.Response]:
    """The answers to requests to solve (arguments of httpx's post), one after the other."""

    async def go(_, __, client):
        return [await client.post("/solve", **request) for request in requests]

    return serve(policy, go, **limits)


def solving(client, *problems) -> list[asyncio.Task]:
    """Requests at the same time."""
    bodies = ({"domain": "mathematics", "problem": problem} for problem in problems)
    return [asyncio.create_task(client.post("/solve", json=body)) for body in bodies]


def active(solver) -> float:
    """Episodes that run."""
    return solver.metrics.registry.get_sample_value("rlkit_active_episodes")


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_a_problem_gets_its_solution_and_the_chain_of_actions(policy):
    (answer,) = posted(policy, {"json": GOOD})
    body = answer.json()
    assert answer.status_code == 200 and body["solution"] == "3" and body["success"]
    assert [a["action"] for a in body["actions"]] == [
        "identify_operation subtract_terms",
        "subtract_terms 7",
        "divide_terms 3",
        "state_answer 3",
    ]
    assert [a["reward"] for a in body["actions"]] == [1.5, 2.0, 2.0, 3.0] and body["total_reward"] == 8.5
    assert body["seconds"] > 0


@pytest.mark.parametrize(("asked", "key", "status", "words"), cases("served_requests"))
def test_a_request_gets_its_status_and_disturbs_nobody(policy, monkeypatch, asked, key, status, words):
    """`asked` is of httpx, with pieces of its content and how often each stands; `key` is what the server has."""
    if pieces := asked.pop("pieces", None):
        asked["content"] = "".join(piece * times for piece, times in pieces)
        asked["headers"] = {"content-type": "application/json", **asked.get("headers", {})}
    if key is not None:
        monkeypatch.setenv("RLKIT_API_KEY", key)

    async def go(_, __, client):
        allowed = {"authorization": f"Bearer {key}"}
        good = client.post("/solve", json={**GOOD, "problem": "2x = 6"}, headers=allowed)
        return await asyncio.gather(client.request(**asked), good)

    answer, good = serve(policy, go)
    assert (answer.status_code, words in answer.text.replace('\\"', '"')) == (status, True), answer.text
    assert status < 400 or isinstance(answer.json()["detail"], str)
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert good.status_code == 200 and good.json()["success"]


def test_live_episodes_share_sampler_calls(policy):
    async def go(sampler, _, client):
        texts = [f"{a}x + {b} = {a * 2 + b}" for a in range(2, 10) for b in range(1, 6)]
        return sampler.batches, await asyncio.gather(*solving(client, *texts))

    batches, answers = serve(policy, go)
    assert all(a.status_code == 200 and a.json()["solution"] == "2" for a in answers)
    assert sum(batches) == 160  # 40 problems of 4 turns
    assert len(batches) < 40


def test_too_many_wait_and_get_429_and_when_to_come_back(policy):
    async def go(sampler, _, client):
        sampler.gate.clear()
        waiting = solving(client, *(f"{a}x + 7 = 16" for a in (2, 3, 4, 5)))
        await until(lambda: sum(task.done() for task in waiting) == 2)
        sampler.gate.set()
        later = solving(client, *(f"{a}x + 7 = 16" for a in (2, 3, 4, 5)))
        return await asyncio.gather(*waiting), await asyncio.gather(*later)

    answers, later = serve(policy, go, max_concurrent=2, timeout=8.0)
    assert sorted(a.status_code for a in answers) == [200, 200, 429, 429]
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.headers["retry-after"] == "1" and "try again" in refused.json()["detail"]
    assert [a.status_code for a in later] == [200] * 4  # two of which waited


def test_an_episode_that_takes_too_long_is_ended(policy):
    async def go(sampler, solver, client):
        sampler.gate.clear()
        answer = await client.post("/solve", json=GOOD)
        sampler.gate.set()
        return answer, active(solver)

    answer, running = serve(policy, go, timeout=0.2)
    assert answer.status_code == 429 and "longer than 0.2 s" in answer.json()["detail"] and running == 0


def test_a_client_that_leaves_costs_the_others_nothing(policy):
    async def go(sampler, solver, client):
        sampler.gate.clear()
        leaving, staying = solving(client, GOOD["problem"], GOOD["problem"])
        await until(lambda: active(solver) == 2)
        leaving.cancel()
        sampler.gate.set()
        answer = await staying
        await until(lambda: active(solver) == 0)
        return answer

    answer = serve(policy, go)
    assert answer.status_code == 200 and answer.json()["success"]


def test_an_episode_that_outgrows_the_context_ends_there_with_what_it_did(policy):
    longer = {**GOOD, "problem": "3x + 7 = 16" + " + 0" * 40}
    short, long = posted(policy, {"json": GOOD}, {"json": longer}, context=130, max_turn_length=40)
    assert short.status_code == 200 and not short.json()["success"]
    assert 1 <= len(short.json()["actions"]) < 4 and short.json()["total_reward"] > 0
    assert long.status_code == 422 and "more than 130 tokens: shorten it" in long.json()["detail"]


def test_metrics_with_the_verdict_of_users_and_what_fails_and_the_schema_are_served(policy):
    async def go(_, solver, client):
        solver.domains["faulty"] = Mathematics(instructions="brief", max_steps=3)
        await client.post("/solve", json=GOOD)
        await client.post("/solve", json={**GOOD, "domain": "none"})
        await client.post("/solve", json={**GOOD, "domain": "faulty"})
        for body in ({"satisfied": True}, {"satisfied": False}, {"satisfied": True, "domain": "business"}):
            await client.post("/feedback", json=body)
        return [await client.get(path) for path in ("/metrics", "/openapi.json")]

    metrics, schema = serve(policy, go)
    assert 'rlkit_requests_total{path="/solve",status="200"} 2.0' in metrics.text
    assert 'rlkit_requests_total{path="/solve",status="422"} 1.0' in metrics.text
    assert "rlkit_active_episodes 0.0" in metrics.text
    assert 'rlkit_episodes_total{domain="mathematics",success="true"} 1.0' in metrics.text
    assert 'rlkit_actions_total{domain="mathematics",valid="true"} 4.0' in metrics.text
    assert {"/solve", "/feedback", "/healthz", "/metrics"} <= set(schema.json()["paths"])
    assert schema.json()["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for domain, satisfied in (("mathematics", "true"), ("mathematics", "false"), ("business", "true")):
        assert f'rlkit_feedback_total{{domain="{domain}",satisfied="{satisfied}"}} 1.0' in metrics.text
    assert 'rlkit_episodes_total{domain="faulty",success="false"} 1.0' in metrics.text  # cut after three steps
    assert 'rlkit_actions_total{domain="faulty",valid="true"} 3.0' in metrics.text


def test_turns_are_as_long_as_asked_or_as_their_domain_needs(policy):
    (program,) = environments.parse("code_generation").problems("train", 1)

    async def go(sampler, _, client):
        await client.post("/solve", json=GOOD)
        of_numbers = set(sampler.lengths)
        await client.post("/solve", json={"domain": "code_generation", "problem": program})
        return of_numbers, sampler.lengths - of_numbers

    assert serve(policy, go) == ({64}, {512})
    assert serve(policy, go, max_turn_length=30) == ({30}, set())


class Broken(Mathematics):
    def act(self, action, params):
        raise ZeroDivisionError


def test_a_broken_environment_is_one_answer_and_disturbs_nobody(policy):
    async def go(_, __, client):
        broken = {"domain": "faulty", "problem": GOOD["problem"]}
        return await asyncio.gather(client.post("/solve", json=broken), client.post("/solve", json=GOOD))

    brief = Mathematics(instructions="brief")
    broken, good = serve(policy, go, {"mathematics": brief, "faulty": Broken(instructions="brief")})
    assert broken.status_code == 500
    assert "answered 'identify_operation' with ZeroDivisionError" in broken.json()["detail"]
    assert good.status_code == 200 and good.json()["success"]


def test_a_sampler_that_breaks_is_one_500_and_the_server_goes_on(policy):
    async def go(sampler, _, client):
        working = sampler.sample
        sampler.sample = lambda *_, **__: 1 / 0
        broken = await client.post("/solve", json=GOOD)
        sampler.sample = working
        return broken, await client.post("/solve", json=GOOD), await client.get("/metrics")

    broken, after, metrics = serve(policy, go)
    assert broken.status_code == 500 and after.status_code == 200
    assert 'rlkit_requests_total{path="/solve",status="500"} 1.0' in metrics.text


@pytest.mark.parametrize(("given", "words"), cases("wrong_settings"))
def test_a_wrong_setting_is_one_sentence(given, words):
    for wrong in (lambda: Settings(**given), lambda: run_server("ladder-30k", settings=given)):
        with pytest.raises(UserError, match=words):
            wrong()


def test_an_open_host_needs_a_key(monkeypatch):
    monkeypatch.delenv("RLKIT_API_KEY", raising=False)
    with pytest.raises(UserError, match="RLKIT_API_KEY"):
        run_server("ladder-30k", host="0.0.0.0")
