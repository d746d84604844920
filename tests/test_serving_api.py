"""The server: answers, limits, errors as JSON, sharing, clients that leave."""

import asyncio
import json
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import ClassVar, Literal, NoReturn

import httpx
import numpy as np
import pytest

from rlkit.agents.agents import Batcher, LanguageModelAgent
from rlkit.config import Model
from rlkit.environments import ActionResult, BaseEnvironment, environments
from rlkit.environments.mathematics import Mathematics
from rlkit.models.loading import load_policy
from rlkit.serving.app import create_app
from rlkit.serving.solver import Settings
from rlkit.types import Sample

GOOD = {"domain": "mathematics", "problem": "3x + 7 = 16"}


class ExpertSampler:
    """Answers a prompt as the expert would, by reading the last equation out of it; can be held back."""

    def __init__(self, policy) -> None:
        self.policy, self.batches, self.gate = policy, [], threading.Event()
        self.gate.set()

    def sample(self, prompts, n, *, seed, max_tokens, temperature=1.0, top_p=1.0):
        self.gate.wait(10)
        self.batches.append(len(prompts))
        return [[self._say(self.policy.tokenizer.decode(ids))] for ids in prompts]

    def _say(self, chat: str) -> Sample:
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

    def session(self, keep):
        return self

    def sync(self, policy) -> None: ...

    def release(self) -> None: ...


@pytest.fixture(scope="module")
def policy():
    return load_policy(Model.model_validate({"path": "ladder-30k"}))


def server(policy, kind=ExpertSampler, **limits):
    """An app with a scripted sampler, and a client for it."""
    sampler = kind(policy)
    domains: dict[str, BaseEnvironment] = {"mathematics": Mathematics(instructions="brief")}
    app = create_app(policy, domains, sampler, Settings(**limits))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return sampler, app, httpx.AsyncClient(transport=transport, base_url="http://test")


def active(solver) -> float:
    """Episodes that run."""
    return solver.metrics.registry.get_sample_value("rlkit_active_episodes")


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_a_problem_gets_its_solution_and_the_chain_of_actions(policy):
    async def go():
        _, _, client = server(policy)
        return await client.post("/solve", json=GOOD), await client.post("/solve", json=GOOD)

    first, again = run(go())
    body = first.json()
    assert first.status_code == 200 and body["solution"] == "3" and body["success"]
    assert [a["action"] for a in body["actions"]] == [
        "identify_operation subtract_terms",
        "subtract_terms 7",
        "divide_terms 3",
        "state_answer 3",
    ]
    assert [a["reward"] for a in body["actions"]] == [1.5, 2.0, 2.0, 3.0] and body["total_reward"] == 8.5
    assert body["seconds"] > 0
    assert not body["cached"] and again.json()["cached"] and again.json()["actions"] == body["actions"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"domain": "astrology", "problem": "x"}, 404, "Unknown domain 'astrology'"),
        ({"domain": "mathematics", "problem": "hello"}, 422, "no equation"),
        ({"domain": "mathematics", "problem": {"equations": 5}}, 422, "no 'mathematics' problem"),
        ({"domain": "business", "problem": "{}"}, 422, "business problem: budget: field required"),
        ({"domain": "mathematics"}, 422, "problem: Field required"),
        ({**GOOD, "temperature": 3}, 422, "temperature: Extra inputs are not permitted"),
        ("[" * 3000 + "]" * 3000, 422, "nested too deep"),
        ('{"problem": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}", 422, "nested too deep"),
        ({"domain": "mathematics", "problem": ""}, 422, "problem: String should have at least 1 character."),
        ({"domain": "mathematics", "problem": "x" * 9000}, 422, "problem"),
        ('{"problem": {"a": 1e999}}', 422, "a number that is not finite"),
        ('{"problem": "\\ud800"}', 422, "unicode"),
        ('{"problem": {"a": "\\ud800"}}', 422, "surrogate"),
        ('{"problem": 5}', 422, "valid string"),
        ("{broken", 422, "The body is no JSON: Expecting property name"),
        ("x" * 1_000_000, 413, "larger than"),
    ],
)
def test_bad_requests_get_a_sentence_and_disturb_nobody(policy, body, status, words):
    async def go():
        _, _, client = server(policy)
        raw = body if isinstance(body, str) else json.dumps(body)
        headers = {"content-type": "application/json"}
        bad, good = await asyncio.gather(
            client.post("/solve", content=raw, headers=headers), client.post("/solve", json=GOOD)
        )
        return bad, good

    bad, good = run(go())
    assert bad.status_code == status and words in bad.json()["error"]
    assert good.status_code == 200 and good.json()["success"]


def test_a_body_without_a_length_is_refused(policy):
    async def chunks():
        yield b"x" * 1000

    async def go():
        _, _, client = server(policy)
        return await client.post("/solve", content=chunks())

    assert run(go()).status_code == 411


def test_a_body_that_is_not_called_json_is_told_the_header(policy):
    async def go():
        _, _, client = server(policy)
        return await client.post("/solve", content='{"problem": "2x = 6"}')

    unnamed = run(go())
    assert unnamed.status_code == 422 and "content-type: application/json" in unnamed.json()["error"]


def test_live_episodes_share_sampler_calls_and_equal_requests_one_episode(policy):
    async def go():
        sampler, _, client = server(policy)
        texts = [f"{a}x + {b} = {a * 2 + b}" for a in range(2, 10) for b in range(1, 6)]
        bodies = [{"domain": "mathematics", "problem": text} for text in texts * 3]
        answers = await asyncio.gather(*(client.post("/solve", json=b) for b in bodies))
        return sampler, answers

    sampler, answers = run(go())
    assert all(a.status_code == 200 and a.json()["solution"] == "2" for a in answers)
    assert sum(sampler.batches) == 160  # 40 problems of 4 turns, however often they were asked
    assert len(sampler.batches) < 40


def test_too_many_get_429_and_when_to_come_back(policy):
    async def go():
        sampler, _, client = server(policy, max_concurrent=2)
        sampler.gate.clear()
        bodies = [{"domain": "mathematics", "problem": f"{a}x + 7 = 16"} for a in (2, 3, 4, 5)]
        waiting = [asyncio.create_task(client.post("/solve", json=b)) for b in bodies]
        await asyncio.sleep(0.3)
        sampler.gate.set()
        return await asyncio.gather(*waiting)

    answers = run(go())
    assert sorted(a.status_code for a in answers) == [200, 200, 429, 429]
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.headers["retry-after"] == "1" and "try again" in refused.json()["error"]


class SlowSampler(ExpertSampler):
    """Takes 10 ms a prompt, so that episodes take longer the more run."""

    def sample(self, prompts, n, **options):
        time.sleep(0.01 * len(prompts))
        return super().sample(prompts, n, **options)


def test_what_could_not_be_answered_in_its_time_is_refused_before(policy):
    async def one(client, problems, end, statuses):
        while time.monotonic() < end:
            problem = dict(next(problems))
            answer = await client.post("/solve", json={"domain": "mathematics", "problem": problem})
            statuses[answer.status_code] += 1
            await asyncio.sleep(0.1 * (answer.status_code == 429))

    async def go():
        _, _, client = server(policy, SlowSampler, timeout=1.5)
        problems = iter(Mathematics(families=("linear",)).problems("train", 4000))
        statuses, end = Counter(), time.monotonic() + 4
        await asyncio.gather(*(one(client, problems, end, statuses) for _ in range(80)))
        return statuses

    statuses = run(go())  # 80 at once would take 3.2 s each
    assert set(statuses) == {200, 429} and statuses[200] > 8


def test_an_episode_that_takes_too_long_is_ended(policy):
    async def go():
        sampler, app, client = server(policy, timeout=0.2)
        sampler.gate.clear()
        answer = await client.post("/solve", json=GOOD)
        sampler.gate.set()
        return answer, app.state.solver

    answer, solver = run(go())
    assert answer.status_code == 504 and "longer than 0.2 s" in answer.json()["error"]
    assert active(solver) == 0


def test_a_client_that_leaves_costs_the_others_nothing(policy):
    async def go():
        sampler, app, client = server(policy)
        sampler.gate.clear()
        leaving = asyncio.create_task(client.post("/solve", json=GOOD))
        staying = asyncio.create_task(client.post("/solve", json=GOOD))
        await asyncio.sleep(0.2)
        leaving.cancel()
        sampler.gate.set()
        return await staying, app.state.solver

    answer, solver = run(go())
    assert answer.status_code == 200 and answer.json()["success"] and active(solver) == 0


def test_an_episode_that_outgrows_the_context_ends_there_with_what_it_did(policy):
    async def go():
        _, _, client = server(policy, context=170, max_turn_length=40)
        short, long = {**GOOD, "problem": "3x + 7 = 16"}, {**GOOD, "problem": "3x + 7 = 16" + " + 0" * 40}
        return await client.post("/solve", json=short), await client.post("/solve", json=long)

    short, long = run(go())
    assert short.status_code == 200 and not short.json()["success"]
    assert 1 <= len(short.json()["actions"]) < 4 and short.json()["total_reward"] > 0
    assert long.status_code == 422 and "more than 170 tokens: shorten it" in long.json()["error"]


def test_the_key_is_asked_for_where_one_is_set(policy, monkeypatch):
    monkeypatch.setenv("RLKIT_API_KEY", "secret")

    async def go():
        _, _, client = server(policy)
        tries = ["", "Bearer wrong", "secret", "Basic secret", "Bearer", "Bearer secret", "bearer secret"]
        posts = [await client.post("/solve", json=GOOD, headers={"authorization": t}) for t in tries]
        return posts, await client.post("/solve", content="{broken"), await client.get("/healthz")

    posts, broken, health = run(go())
    assert [p.status_code for p in posts] == [401] * 5 + [200] * 2 and "error" in posts[0].json()
    assert posts[0].headers["www-authenticate"] == "Bearer" and broken.status_code == 401
    assert health.json()["status"] == "ok"


def test_metrics_and_the_schema_are_served(policy):
    async def go():
        _, _, client = server(policy)
        await client.post("/solve", json=GOOD)
        await client.post("/solve", json={**GOOD, "domain": "none"})
        return [await client.get(path) for path in ("/metrics", "/openapi.json", "/nowhere", "/solve")]

    metrics, schema, nowhere, wrong = run(go())
    assert 'rlkit_requests_total{path="/solve",status="200"} 1.0' in metrics.text
    assert 'rlkit_requests_total{path="/solve",status="404"} 1.0' in metrics.text
    assert "rlkit_active_episodes 0.0" in metrics.text
    assert 'rlkit_episodes_total{domain="mathematics",success="true"} 1.0' in metrics.text
    assert 'rlkit_actions_total{domain="mathematics",valid="true"} 4.0' in metrics.text
    assert "rlkit_reward_sum 8.5" in metrics.text
    assert {"/solve", "/feedback", "/healthz", "/metrics"} <= set(schema.json()["paths"])
    assert schema.json()["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert (nowhere.status_code, wrong.status_code, wrong.headers["allow"]) == (404, 405, "POST")
    assert nowhere.json() == {"error": "Not Found: /docs lists the paths."}


def test_a_problem_may_be_part_of_the_address(policy):
    async def go():
        _, _, client = server(policy)
        return [
            await client.post("/solve", params={"problem": "Solve for x: 3x + 7 = 16"}),
            await client.post("/solve", params={"problem": "3x + 7 = 16", "domain": "none"}),
            await client.post("/solve", params={"problem": ""}),
            await client.post("/solve"),
        ]

    solved, unknown, short, empty = run(go())
    assert solved.status_code == 200 and solved.json()["solution"] == "3"
    assert unknown.status_code == 404 and "Unknown domain" in unknown.json()["error"]
    assert short.status_code == 422 and short.json()["error"].startswith("problem: String should have")
    assert empty.status_code == 422 and "?problem=" in empty.json()["error"]


def test_the_verdict_of_users_and_what_fails_are_counted(policy):
    async def go():
        _, app, client = server(policy)
        app.state.solver.domains["faulty"] = Faulty(max_steps=3)
        await client.post("/solve", json={"domain": "faulty", "problem": {"n": 3}})
        bodies = [{"satisfied": True}, {"satisfied": False}, {"satisfied": True, "domain": "business"}]
        bodies += [{"satisfied": True, "domain": "none"}, {"satisfied": "perhaps"}, {}]
        posts = [await client.post("/feedback", json=body) for body in bodies]
        return posts, (await client.get("/metrics")).text

    posts, metrics = run(go())
    assert [p.status_code for p in posts] == [204, 204, 204, 404, 422, 422]
    assert 'rlkit_feedback_total{domain="mathematics",satisfied="true"} 1.0' in metrics
    assert 'rlkit_feedback_total{domain="mathematics",satisfied="false"} 1.0' in metrics
    assert 'rlkit_feedback_total{domain="business",satisfied="true"} 1.0' in metrics
    assert 'rlkit_episodes_total{domain="faulty",success="false"} 1.0' in metrics


def test_turns_are_as_long_as_asked_or_as_the_domains_need(policy):
    def lengths(domains, **limits):
        sampler = ExpertSampler(policy)
        seen = []
        say = sampler.sample

        def sample(prompts, n, **options):
            seen.append(options["max_tokens"])
            return say(prompts, n, **options)

        sampler.sample = sample
        app = create_app(policy, domains, sampler, Settings(**limits))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)

        async def go():
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                await client.post("/solve", json=GOOD)

        run(go())
        return set(seen)

    mathematics = {"mathematics": Mathematics(instructions="brief")}
    both = mathematics | {"code_generation": environments.parse("code_generation")}
    assert lengths(mathematics) == {64} and lengths(both) == {512}
    assert lengths(both, max_turn_length=30) == {30}


class Faulty(BaseEnvironment):
    """Its only action breaks the contract as told, or never ends the episode."""

    actions: ClassVar[dict[str, str]] = {"go": "somewhere"}
    kind: Literal["faulty"] = "faulty"
    fault: str = "never"

    def problem(self, rng):
        return {"n": int(rng.integers(9))}

    def begin(self, problem):
        return "3x = 9"  # which the scripted sampler can read

    def act(self, action, params):
        if self.fault == "raises":
            raise ZeroDivisionError
        answers = {"nan": float("nan"), "type": "one"}
        return ActionResult("3x = 9", answers.get(self.fault, 0.5), False)  # type: ignore[arg-type]

    def parse_action(self, text):
        return "go", {}


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("nan", 500, "the reward nan: a reward is a finite number"),
        ("type", 500, "the reward 'one'"),
        ("raises", 500, "answered 'go' with ZeroDivisionError"),
        ("never", 200, ""),
    ],
)
def test_a_broken_environment_is_one_answer_and_disturbs_nobody(policy, fault, status, words):
    async def go():
        _, app, client = server(policy)
        app.state.solver.domains["faulty"] = Faulty(fault=fault, max_steps=3)
        broken = {"domain": "faulty", "problem": {"n": 3}}
        return await asyncio.gather(client.post("/solve", json=broken), client.post("/solve", json=GOOD))

    broken, good = run(go())
    assert broken.status_code == status and words in broken.json().get("error", "")
    if fault == "never":
        assert (len(broken.json()["actions"]), broken.json()["success"]) == (3, False)
    assert good.status_code == 200 and good.json()["success"]


def breaks(*_, **__) -> NoReturn:
    raise ZeroDivisionError


def test_a_sampler_that_breaks_is_one_500_and_the_server_goes_on(policy):
    async def go():
        sampler, _, client = server(policy)
        working = sampler.sample
        sampler.sample = breaks
        broken = await client.post("/solve", json=GOOD)
        sampler.sample = working
        return broken, await client.post("/solve", json=GOOD), await client.get("/metrics")

    broken, after, metrics = run(go())
    assert broken.status_code == 500 and broken.json() == {"error": "The server failed: ZeroDivisionError."}
    assert after.status_code == 200
    assert 'rlkit_requests_total{path="/solve",status="500"} 1.0' in metrics.text


def test_what_the_policy_said_stays_in_the_chat_as_it_was_sampled(policy):
    """Each turn's prompt is the one before, the sampled ids and the template's own text around the observation,
    also where the ids are not those that the tokenizer would give the text."""
    sampler, asked = ExpertSampler(policy), []
    tokenizer, odd = policy.tokenizer, policy.tokenizer.convert_tokens_to_ids("user")

    def sample(prompts, n, **_):
        asked.append(prompts[0])
        ids = np.array([odd, *tokenizer.encode("ser " if len(asked) < 3 else " cut")])
        return [[Sample(ids, np.full(len(ids), -0.1, np.float32), "length")]]

    sampler.sample = sample
    env = Mathematics(instructions="brief", max_steps=4)
    trajectory = run(LanguageModelAgent(policy, Batcher(sampler, 12)).run_episode(env, "3x + 7 = 16"))
    chat = list(trajectory.messages)
    for prompt, step in zip(asked, trajectory.transitions, strict=True):
        whole = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert tokenizer.decode(prompt) == whole
        chat += [{"role": "assistant", "content": step.text}, {"role": "user", "content": step.next_state}]
    for before, after in pairwise(asked):
        assert after[: len(before)].tolist() == before.tolist() and after[len(before)] == odd


def test_a_newcomer_waits_for_those_who_are_about_to_ask_again(policy):
    sampler = ExpertSampler(policy)
    prompt = np.array(policy.tokenizer.encode("3x + 7 = 16"))

    async def go():
        batcher = Batcher(sampler, 12)

        async def turns(count):
            for _ in range(count):
                await batcher.sample(prompt)
                await asyncio.sleep(0)

        sampler.gate.clear()
        episodes = [asyncio.create_task(turns(2)) for _ in range(2)]
        await asyncio.sleep(0.05)  # their first turn is being sampled
        newcomer = asyncio.create_task(turns(1))
        await asyncio.sleep(0)
        sampler.gate.set()
        await asyncio.gather(*episodes, newcomer)

    run(go())
    assert sampler.batches == [2, 3]


def test_an_open_host_needs_a_key(monkeypatch):
    from rlkit.errors import UserError
    from rlkit.serving.app import serve

    monkeypatch.delenv("RLKIT_API_KEY", raising=False)
    with pytest.raises(UserError, match="RLKIT_API_KEY"):
        serve("ladder-30k", host="0.0.0.0")
