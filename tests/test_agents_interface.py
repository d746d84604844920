"""The interface that people know, in the words of its best-known snippets; and the examples of the page on agents and
of the README, run as printed."""

import asyncio
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from cases import DATA

from rlkit import ActionResult, AgenticTrainer, BaseAgent, BaseEnvironment
from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.agents.trainer import AgenticConfig
from rlkit.environments import check_environment, environments
from rlkit.environments.episode import Episode
from rlkit.errors import UserError
from rlkit.measures.episodes import episode_metrics

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(code: str, **known: Any) -> dict[str, Any]:
    """What the code has defined, beside what was known."""
    names: dict[str, Any] = {"__name__": "example", **known}
    exec(code, names)
    return names


def test_the_snippets_run_as_they_are_printed():
    known = {"MODEL": "ladder-30k", "observation": "seen", "reward": 1.0, "done": True, "best_action": "action2"}
    names = run((DATA / "agent_snippet.txt").read_text(), info={"success": True}, **known)
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


def test_small_data_are_divided_into_small_batches():
    env = environments.parse({"kind": "mathematics", "families": ["linear"], "instructions": "brief"})
    trainer = AgenticTrainer("ladder-30k", config=AgenticConfig(epochs=2))
    data = trainer.prepare_training_data(run_episodes(ExpertAgent(), env, env.problems("train", 24)))
    result = trainer.train(data)
    assert result.loss_reduction > 0 and len(result.losses) == 16


def test_structure_is_the_share_of_turns_in_the_form_action_and_result():
    env = environments.parse("mathematics")
    episode = Episode.begin(env, "3x + 7 = 16")
    for text in ("I think subtract_terms 7", "Action: divide_terms 3", "nonsense", "state_answer 3"):
        episode.say(text)
    trajectory = episode.trajectory()
    assert [t.formatted for t in trajectory.transitions] == [False, True, False, True]
    values = episode_metrics({"model": [trajectory]}).set_index("metric")["value"]
    assert values["structure"] == 0.5


class Board(BaseEnvironment):
    """As people write it: attributes of the class, an __init__ that calls no other, a problem in words."""

    actions = ["put left", "put", "take"]  # noqa: RUF012
    max_steps = 4
    seen = []  # noqa: RUF012
    count = 0

    def __init__(self):
        self.started = True

    def problem(self, rng):
        return f"board {rng.integers(1000)}"

    def reset(self, problem):
        self.problem = problem

    def step(self, action, params=None):
        self.count += 1
        self.seen.append(action)
        return ActionResult(f"{self.count}: {self.seen}", 1.0, self.count == 3, {"success": True})


class Fewer(Counter):
    max_steps = 3


def test_attributes_of_a_class_need_no_annotation_and_begin_every_episode_anew():
    env = Board()
    check_environment(env, episodes=3)
    assert env.max_steps == 4 and env.started and Board.count == 0 and Board.seen == []
    for _ in range(2):
        assert env.reset("a board") == "a board" and env.step("put left").observation == "1: ['put left']"
    assert [len(e) for e in run_episodes(RandomAgent(), env, ["a", "b"])] == [3, 3]
    assert "- put left\n- put\n- take" in env.messages("x")[0]["content"]
    with pytest.raises(ValueError, match="greater than 0"):
        Fewer(max_steps=-1)


class Below(Board):
    """An environment below another of one's own."""


def test_the_trainer_finds_the_environment_of_an_episode_however_deep_its_class_is():
    trainer = AgenticTrainer("ladder-10k", config=AgenticConfig(max_response_length=30, max_turn_length=10))
    trainer.prepare_training_data(run_episodes(RandomAgent(), Below(), ["a"]))
    assert isinstance(trainer.environment, Below)


class Many(Board):
    actions = [f"action_{i}" for i in range(10_000)]  # noqa: RUF012


def test_a_prompt_that_is_too_long_is_one_sentence():
    many = Many()
    check_environment(many, episodes=1)
    many.reset("a board")
    refused = many.step("fly").observation
    assert len(refused) < 500 and refused.endswith("and 9980 more.")
    trainer = AgenticTrainer("ladder-10k", many)
    with pytest.raises(UserError, match="A prompt of 'Many' has .* tokens, and 2048 are allowed"):
        trainer.test_inference("a board")


@pytest.mark.parametrize("chosen", [None, 3, ("put", None, 1), (1, "x")])
def test_an_agent_that_chooses_no_action_is_told_what_to_return(chosen):
    with pytest.raises(UserError, match="select_action of Script returned .*: return an action's name"):
        run_episodes(Script(chosen), Board(), "x")
    assert run_episodes(Script("put", "put", "put"), Board(), "x")[0].success  # a name alone will do


@pytest.mark.slow(reason="trains for a minute")
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/agents.md"])
def test_the_printed_training_solves_held_out_equations(page):
    (example,) = (block for block in blocks(page) if "NoisyAgent" in block)
    made = run(f"import rlkit\n{example}")
    solved = made["trainer"].test_inference(made["env"].problems("test", 100, 1))
    assert sum(e["success"] for e in solved) >= 80
