"""The interface that people know: an environment, an agent, a training, in the words of its best-known snippets."""

import asyncio
import pickle
from typing import Any

import pytest

from rlkit import ActionResult, AgenticTrainer, BaseAgent, BaseEnvironment
from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.agents.trainer import AgenticConfig
from rlkit.environments import check_environment, environments
from rlkit.errors import UserError

SNIPPET = """
from rlkit import BaseEnvironment, BaseAgent, ActionResult, AgenticTrainer

class YourEnvironment(BaseEnvironment):
    def get_valid_actions(self): return ["action1", "action2"]
    def step(self, action, params=None): return ActionResult(observation, reward, done, info)
class YourAgent(BaseAgent):
    def select_action(self, state, valid_actions): return best_action, "some params"

async def main(agent, env, problem, test_problems):
    episode = await agent.run_episode(env, problem); episode["success"], episode["total_reward"]
    trajectories = [episode]
    trainer = AgenticTrainer(MODEL)
    model, tokenizer, device = trainer.setup_model()
    dataset = trainer.prepare_training_data(trajectories)
    losses = await trainer.train(dataset)
    results = trainer.test_inference(test_problems)
    return episode, (model, tokenizer, device), losses, results
"""


def test_the_snippets_run_as_they_are_printed():
    names: dict[str, Any] = {
        "MODEL": "ladder-30k", "observation": "seen", "reward": 1.0, "done": True, "info": {"success": True},
        "best_action": "action2",
    }  # fmt: skip
    exec(SNIPPET, names)
    env, agent = names["YourEnvironment"](), names["YourAgent"]()
    episode, (model, tokenizer, device), losses, results = asyncio.run(
        names["main"](agent, env, "3x + 7 = 16", ["Solve for x: 3x + 7 = 16"])
    )
    assert episode["success"] is True and episode["total_reward"] == 1.0
    (step,) = episode["transitions"]
    assert (step.state, step.text, step.next_state) == ("3x + 7 = 16", "action2 some params", "seen")
    assert next(model.parameters()).device == device and tokenizer.eos_token_id is not None
    assert len(losses) == 4 and all(isinstance(loss, float) for loss in losses)
    assert results[0].environment == "YourEnvironment" and len(results[0]) >= 1


def test_a_known_problem_is_understood_in_words_and_actions_take_their_value_alone():
    env = environments.parse("mathematics")
    assert env.reset("Solve for x: 3x + 7 = 16") == "3x + 7 = 16"
    result = env.step("subtract_terms", "7")
    assert (result.observation, result.reward, result.done) == ("3x = 9", 2.0, False)
    trainer = AgenticTrainer("ladder-30k", "mathematics", AgenticConfig(max_response_length=40))
    (alone,) = trainer.test_inference("3x + 7 = 16")
    (listed,) = trainer.test_inference(["Solve for x: 3x + 7 = 16"])
    assert alone == listed


@pytest.mark.parametrize(("text", "equations"), [
    ("Solve 3x + 7 = 16", ["3x + 7 = 16"]),
    ("Solve 3x + 7 = 16 for x.", ["3x + 7 = 16"]),
    ("What is x when 3x + 7 = 16?", ["3x + 7 = 16"]),
    ("Let y be the unknown of 2(y - 1) = 8", ["2(y - 1) = 8"]),
])  # fmt: skip
def test_equations_are_read_out_of_sentences(text, equations):
    assert environments.parse("mathematics").read(text)["equations"] == equations


@pytest.mark.parametrize(
    "text",
    ["3,5x = 7", "Problem 3: 2x = 4", "sin(x) = 0", "xy = 3", "hello", "3x + 7", "x + y = 5 and x - y = 1"],
)
def test_what_is_no_equation_is_never_read_as_another_one(text):
    with pytest.raises(UserError):
        environments.parse("mathematics").read(text)


class Script(BaseAgent):
    """Says what it is told, and keeps the states that it saw."""

    def __init__(self, *actions) -> None:
        self.actions, self.states = actions, []

    def select_action(self, state, valid_actions):
        self.states.append(state)
        return self.actions[len(self.states) - 1]


def test_a_state_behaves_like_a_dict():
    moves = ("identify_operation", "subtract_terms"), ("subtract_terms", 7), ("distribute", None)
    agent = Script(*moves, ("state_answer", {"value": "3"}))
    (episode,) = run_episodes(agent, environments.parse("mathematics"), "3x + 7 = 16")
    assert episode["success"] and [t.reward for t in episode["transitions"]] == [1.5, 2.0, -1.0, 3.0]
    state = agent.states[1]
    assert state["observation"] == state.observation == "Yes. 3x + 7 = 16" == state["messages"][-1]["content"]
    assert state["problem"]["equations"] == ["3x + 7 = 16"] and "seed" in state and state.get("none", 1) == 1
    assert dict(state)["environment"] is state.environment
    with pytest.raises(KeyError):
        state["nothing"]
    with pytest.raises(KeyError):
        episode["nothing"]


class Counter(BaseEnvironment):
    """The short form with a state of its own: count to the goal."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.at, self.seen = 0, []

    def reset(self, problem: Any = None):
        self.goal = int(problem["seed"]) % 5 + 1 if isinstance(problem, dict) else int(problem)
        return f"0 of {self.goal}"

    def get_valid_actions(self):
        return ["up", "down"]

    def step(self, action, params=None):
        self.at += 1 if action == "up" else -1
        self.seen.append(self.at)
        done, reward = self.at == self.goal, 1.0 if action == "up" else -1.0
        return ActionResult(f"{self.at} of {self.goal}", reward, done, {"success": done})


class Climber(BaseAgent):
    def select_action(self, state, valid_actions):
        return valid_actions[0], None


def test_the_short_form_has_what_every_environment_has():
    env = Counter(max_steps=6)
    check_environment(env, episodes=4)
    played = run_episodes(Climber(), env, ["3", "2", "9"])
    assert [e.success for e in played] == [True, True, False] and played[2].truncated and len(played[2]) == 6
    assert env.at == 0 and env.seen == []  # each episode had a copy
    env.reset("3")
    assert env.step("fly").info["valid"] is False and env.at == 0
    assert env.step("up").observation == pickle.loads(pickle.dumps(env)).reset("3").replace("0", "1", 1)
    env.reset("2")
    assert (env.at, env.seen) == (0, [])  # and begins anew
    assert run_episodes(RandomAgent(), env, ["2"], seed=1)[0].transitions


class Stubborn(BaseEnvironment):
    def get_valid_actions(self):
        return ["go"]

    def step(self, action, params: Any = None):
        return ActionResult("on", int(params), False, {})


def test_the_checker_knows_the_short_form():
    with pytest.raises(UserError) as found:
        check_environment(Stubborn(), episodes=2)
    assert "ValueError" in str(found.value) or "TypeError" in str(found.value)
    with pytest.raises(UserError, match="write step"):
        BaseEnvironment().act("x", {})


def test_small_data_are_divided_into_small_batches():
    env = environments.parse({"kind": "mathematics", "families": ["linear"], "instructions": "brief"})
    trainer = AgenticTrainer("ladder-30k", config=AgenticConfig(epochs=2))
    data = trainer.prepare_training_data(run_episodes(ExpertAgent(), env, env.problems("train", 24)))
    result = trainer.train(data)
    assert result.loss_reduction > 0 and len(result.losses) == 16


def test_structure_is_the_share_of_turns_in_the_form_action_and_result():
    from rlkit.environments.episode import Episode
    from rlkit.measures.episodes import episode_metrics

    env = environments.parse("mathematics")
    episode = Episode.begin(env, "3x + 7 = 16")
    for text in ("I think subtract_terms 7", "Action: divide_terms 3", "nonsense", "state_answer 3"):
        episode.say(text)
    trajectory = episode.trajectory()
    assert [t.formatted for t in trajectory.transitions] == [False, True, False, True]
    table = episode_metrics({"model": [trajectory]}, run_episodes(ExpertAgent(), env, "3x + 7 = 16"))
    values = table.set_index("metric")["value"]
    assert values["structure"] == 0.5 and 0 < values["expert_order"] < 1
