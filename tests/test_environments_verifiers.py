"""Environments of verifiers, and environments as verifiers plays them."""

import asyncio
import sys
from types import ModuleType

import pytest

from rlkit.agents import BaseAgent, run_episodes
from rlkit.environments import check_environment, environments
from rlkit.environments.adapters import verifiers_environment

verifiers = pytest.importorskip("verifiers", reason="verifiers is not installed: pip install 'verifiers<0.4'")
if not hasattr(verifiers, "MultiTurnEnv"):
    pytest.skip("this verifiers has no MultiTurnEnv: pip install 'verifiers<0.4'", allow_module_level=True)


class Guess(verifiers.MultiTurnEnv):
    """Guess a number by the hints."""

    async def env_response(self, messages, state, **_):
        said, number = int(messages[-1].content), int(state["answer"])
        if said == number:
            state["final_env_response"] = [{"role": "user", "content": "right"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if said < number else "lower"}]


def load_environment(max_turns: int = 8, tools: bool = False):
    from datasets import Dataset

    def found(completion, answer) -> float:
        return float(completion[-1].content == "right" or completion[-1].content == answer)

    told = {"role": "user", "content": "Guess a number from 0 to 99."}
    rows = Dataset.from_list([{"prompt": [told], "answer": str(7 * k % 100)} for k in range(40)])
    definition = [{"name": "look", "description": "", "parameters": {}}] if tools else None
    rubric = verifiers.Rubric(funcs=[found])
    return Guess(dataset=rows, rubric=rubric, max_turns=max_turns, tool_defs=definition)


@pytest.fixture(autouse=True)
def world(monkeypatch):
    module = ModuleType("guess_number")
    module.load_environment = load_environment  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "guess_number", module)


class Bisection(BaseAgent):
    """Follows the hints."""

    def select_action(self, state, valid_actions):
        low, high, said = 0, 99, None
        for message in state.messages:
            if message["role"] == "assistant":
                said = int(message["content"])
            elif said is not None:
                low, high = (said + 1, high) if message["content"] == "higher" else (low, said - 1)
        return "answer", str((low + high) // 2)


def test_its_environments_are_played_to_the_end_and_scored_by_their_rubric():
    env = environments.parse({"kind": "verifiers", "id": "guess-number"})
    won = run_episodes(Bisection(), env, env.problems("test", 5))
    assert all(e.success and e.total_reward == 1.0 and not e.truncated for e in won)
    assert (
        won[0].messages[0]["content"].startswith("Guess a number")
        and won[0].transitions[-1].next_state == "right"
    )
    assert {t.next_state for e in won for t in e.transitions[:-1]} <= {"higher", "lower"}
    short = environments.parse({"kind": "verifiers", "id": "guess-number", "options": {"max_turns": 1}})
    (lost,) = run_episodes(Bisection(), short, [{"row": 9}])
    assert not lost.success and len(lost) == 1 and lost.total_reward == 0.0
    check_environment(short, episodes=3)


def test_one_that_is_not_there_or_needs_tools_is_one_sentence():
    with pytest.raises(ValueError, match="does not load here"):
        environments.parse({"kind": "verifiers", "id": "no-such-world"})
    env = environments.parse({"kind": "verifiers", "id": "guess-number", "options": {"tools": True}})
    with pytest.raises(ValueError, match="needs tool calls"):
        env.reset({"row": 0})


def test_an_environment_is_played_by_verifiers_and_its_return_is_the_reward():
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage

    walk = environments.parse("line_walk")
    env = verifiers_environment(walk, problems=3)

    class Expert(Client):
        """Says what the expert of the episode's own environment does."""

        async def get_response(self, prompt, model, sampling_args, tools=None, **kwargs):
            world = kwargs["state"]["episode"].environment
            text = world.format_action(*world.expert())
            message = ResponseMessage(content=text, finish_reason="stop", is_truncated=False)
            return Response(id="", created=0, model=model, message=message)

    for name in Client.__abstractmethods__:
        setattr(Expert, name, None)
    Expert.__abstractmethods__ = frozenset()

    async def played(row):
        state = await env.rollout(row, Expert(None), "expert")
        await env.rubric.score_rollout(state)
        return state

    for row in env.get_dataset():
        state = asyncio.run(played(row))
        assert state["metrics"]["success"] == 1.0 and state["reward"] >= 5.0
        assert state["completion"][-1].content.startswith("at ")
