"""Business, creative writing and code: rewards come from the world, and each part can be recomputed."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from cases import cases

from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.agents.trainer import AgenticConfig
from rlkit.environments import creative_writing as quality
from rlkit.environments import environments
from rlkit.environments.business import cvar
from rlkit.environments.code_generation import FAMILIES, failures
from rlkit.environments.episode import Episode
from rlkit.params import settings


class Dial(gymnasium.Env):
    """Turn by -1, 0 or 1."""

    action_space, observation_space = gymnasium.spaces.Discrete(3, start=-1), gymnasium.spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.at, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.at += int(action)
        return self.at, float(action), self.at == 2, False, {}


gymnasium.register("Dial-v0", Dial, max_episode_steps=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("about", "world", "problem", "moves"), cases("scripted_episodes"))
def test_moves_earn_and_tell_what_is_documented(about, world, problem, moves):
    """Each move is an action and its value, or a model's text; beside it the reward, a pattern of the observation and
    other facts of the step, `shown` as the environment renders its state."""
    env = environments.parse(world)
    env.reset(problem)
    for action, value, facts in moves:
        result = env.step(*(env.parse_action(action) if "\n" in action else (action, value)))
        found = {"reward": result.reward, "done": result.done, "shown": env.render(), "solution": env.solution()}
        found |= result.info
        assert re.search(facts.pop("sees", ""), result.observation), about
        for name, wanted in facts.items():
            exact = wanted if isinstance(wanted, bool | str) else pytest.approx(wanted)
            assert found[name] == exact, (about, name)


def test_cvar_is_the_mean_of_the_worst_quarter():
    rng = np.random.default_rng(0)
    values, chances = [10.0, -4.0, 3.0, -20.0], [0.4, 0.3, 0.2, 0.1]
    draws = np.sort(rng.choice(values, 400_000, p=chances))
    assert cvar(values, chances) == pytest.approx(draws[: len(draws) // 4].mean(), abs=0.1)
    assert cvar(values, chances) == pytest.approx((0.1 * -20 + 0.15 * -4) / 0.25)


BRIEF = {"topic": "a key", "elements": ["key", "river"], "words": [10, 20], "paragraphs": 1}
TEXT = "The key lay beside the river. Nobody knew who had lost it there."


def test_a_text_earns_the_same_whichever_way_it_came_about():
    env = environments.parse("creative_writing")

    def earned(*texts: str) -> list[float]:
        env.reset(BRIEF)
        written = [env.step("write_paragraph", texts[0])]
        return [r.reward for r in written + [env.step("edit_content", f"1: {text}") for text in texts[1:]]]

    assert sum(earned(TEXT)) == pytest.approx(sum(earned("Bad bad bad bad.", TEXT)))
    assert earned(TEXT, "key key key key.")[1] < 0


def test_measures_of_text_by_hand():
    assert quality.distinct("a b a b a b") == pytest.approx(2 / 5)
    assert quality.flesch("The cat sat. The dog ran.") == pytest.approx(206.835 - 1.015 * 3 - 84.6)
    assert quality.grammar("She goes to school every day.") == 1
    assert quality.grammar("She go to school every days.") < 1
    assert quality.sentences("One. Two! ... Three?") == ["One.", "Two!", "Three?"]
    assert quality.mentions("Old keys and rivers", "key") and not quality.mentions("monkey", "key")


def test_every_family_is_drawn_and_its_reference_passes():
    env = environments.parse("code_generation")
    problems = env.problems("train", 30, 0) + env.problems("test", 10, 0)
    seen = {re.sub(r"\d+", "", p["description"]) for p in problems}
    assert len(seen) == len(FAMILIES)
    for p in problems[::3]:
        cases = tuple((a, b) for a, b in p["visible"] + p["hidden"])
        assert failures(p["reference"], cases) == [None] * 9
        wrong = tuple((a, [b]) for a, b in cases)
        assert all(str(f).startswith("it returned") for f in failures(p["reference"], wrong))


@pytest.mark.parametrize("value", ["7", "null", '["def solve(xs): ..."]'])
def test_a_program_that_is_no_text_is_the_models_mistake_and_ends_nothing(value):
    env = environments.parse("code_generation")
    episode = Episode.begin(env, env.problems("train", 1)[0])
    episode.say(f'{{"name": "write_function", "arguments": {{"value": {value}, "more": 1}}}}')
    assert episode.finish is None and not episode.transitions[0].valid


@pytest.mark.parametrize("kind", ["business", "creative_writing", "code_generation"])
def test_the_expert_succeeds_and_beats_chance(kind):
    env = environments.parse(kind)
    problems = env.problems("test", 4, 2)
    expert, random = (run_episodes(agent, env, problems) for agent in (ExpertAgent(), RandomAgent()))
    assert all(e.success for e in expert)
    assert np.mean([e.total_reward for e in expert]) > np.mean([e.total_reward for e in random]) + 2


@pytest.mark.parametrize("path", sorted(Path("params").glob("custom_domain*.yaml")), ids=lambda path: path.stem)
def test_a_model_trained_by_a_params_file_has_room_for_what_the_expert_says(path):
    chosen = settings(str(path), {})
    env = environments.parse({"kind": chosen["kind"], **chosen["options"]})
    training = AgenticConfig(**chosen["training"])
    for episode in run_episodes(ExpertAgent(), env, env.problems("test", 20)):
        said = [len(step.text.encode()) for step in episode.transitions]  # a ladder model's tokens are bytes
        heard = sum(len(step.next_state.encode()) for step in episode.transitions)
        assert episode.success and max(said) < training.max_turn_length
        assert sum(said) + heard + 40 * len(said) < training.max_response_length
