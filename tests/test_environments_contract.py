"""What every environment promises, and that the checker notices when one does not."""

import pickle
from typing import ClassVar, Literal

import numpy as np
import pytest

from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, check_environment, environments
from rlkit.environments.gymnasium_adapter import GymnasiumEnv
from rlkit.environments.scaffold import new_environment
from rlkit.errors import UserError

KINDS = ("mathematics", "business", "creative_writing")


class Count(BaseEnvironment):
    """Say `add` until the target is reached; options break one promise each."""

    actions: ClassVar[dict[str, str]] = {"add": "add value", "quit": "give up"}
    kind: Literal["count"] = "count"
    fault: str = ""

    def problem(self, rng: np.random.Generator):
        target = int(rng.integers(1, 1000))
        return {"target": {1, 2}} if self.fault == "no json" else {"target": target}

    def begin(self, problem):
        self._state = 0
        return 7 if self.fault == "observation" else f"0 of {problem['target']}"

    def act(self, action, params):
        if action == "quit":
            return ActionResult("over", 0.0, self.fault != "endless", {"success": False})
        if self.fault == "raises":
            return ActionResult("", float(params["value"]), False)
        try:
            self._state += int(str(params.get("value", 1)))
        except ValueError:
            raise InvalidAction("add needs a number") from None
        reward = {"nan": float("nan"), "text": "1"}.get(self.fault, 1.0)
        if self.fault == "random":
            reward = float(np.random.default_rng().random())
        return ActionResult(str(self._state), reward, False)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_domain_keeps_the_contract(kind):
    check_environment(environments.parse(kind), episodes=4)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no json", "not JSON serializable"),
        ("observation", "not a string"),
        ("raises", "KeyError"),
        ("nan", "reward nan"),
        ("text", "a reward is a finite number"),
        ("random", "different results"),
    ],
)
def test_the_checker_names_the_broken_promise(fault, words):
    with pytest.raises(UserError, match=words):
        check_environment(Count(fault=fault), episodes=3)


def test_the_checker_passes_what_is_right():
    check_environment(Count(), episodes=3)


def test_an_episode_that_never_ends_is_truncated_without_success():
    env = Count(fault="endless", max_steps=5)
    env.reset({"target": 9})
    results = [env.step("quit") for _ in range(5)]
    assert [r.done for r in results] == [False] * 4 + [True]
    assert results[-1].info["truncated"] and not results[-1].info["success"]
    assert env.step("add").info["valid"] is False  # after the end: no exception, no reward
    assert env.step("add").reward == 0.0


def test_an_invalid_action_costs_and_changes_nothing():
    env = Count(invalid_reward=-0.25)
    env.reset({"target": 9})
    env.step("add", {"value": 4})
    for action, params in (("fly", None), ("add", {"value": "x"})):
        result = env.step(action, params)
        assert (result.reward, result.done, result.info["valid"]) == (-0.25, False, False)
    assert "Valid actions: add, quit" in env.step("fly").observation
    assert env.step("add", {"value": 1}).observation == "5"


def test_a_copy_goes_its_own_way():
    env = Count()
    env.reset({"target": 9})
    twin = pickle.loads(pickle.dumps(env))
    env.step("add", {"value": 4})
    assert (env.render(), twin.render()) == ("4", "0")


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_share_no_problem_for_any_seeds(seed):
    env = environments.parse(
        {"kind": "mathematics", "families": ["linear"], "largest_solution": 2, "largest_number": 4}
    )
    train = {str(p) for p in env.problems("train", 300, seed)}
    test = {str(p) for other in range(3) for p in env.problems("test", 100, other)}
    assert train and test and not train & test


@pytest.mark.parametrize(
    ("text", "action", "params"),
    [
        ("subtract_terms 7", "subtract_terms", {"value": "7"}),
        ("I should do\nsubtract_terms(2x + 1)", "subtract_terms", {"value": "2x + 1"}),
        ('add_terms {"value": "3"}', "add_terms", {"value": "3"}),
        ("distribute", "distribute", {}),
        ("xsubtract_terms 7", "xsubtract_terms", {}),
        ("", "", {}),
    ],
)
def test_actions_are_parsed_from_text(text, action, params):
    assert environments.parse("mathematics").parse_action(text) == (action, params)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", [{}, {"equations": ["x"]}, "nonsense", {"words": [5, 2]}])
def test_a_senseless_problem_is_one_sentence(kind, problem):
    with pytest.raises(UserError):
        environments.parse(kind).reset(problem)


def test_gymnasium_accepts_our_environments():
    from gymnasium.utils.env_checker import check_env

    env = GymnasiumEnv(environments.parse("mathematics"), render_mode="ansi")
    check_env(env, skip_render_check=True)
    observation, info = env.reset(options={"problem": "3x + 7 = 16"})
    assert observation == "3x + 7 = 16" and "state_answer" in info["valid_actions"]
    observation, reward, terminated, truncated, _ = env.step("state_answer 3")
    assert (reward, terminated, truncated) == (3.0, True, False)


def test_a_gymnasium_environment_acts_here():
    env = environments.parse(
        {
            "kind": "gymnasium",
            "id": "FrozenLake-v1",
            "names": ["left", "down", "right", "up"],
            "options": {"is_slippery": False},
        }
    )
    check_environment(env, episodes=3)
    observation = env.reset({"seed": 0})
    assert observation.startswith("[S]FFF")  # the agent's place is marked without terminal colours
    moves = ["down", "down", "right", "right", "down", "right"]
    results = [env.step(move) for move in moves]
    assert results[-1].reward == 1.0 and results[-1].done and results[-1].info["success"]


def test_an_unknown_gymnasium_environment_is_refused():
    with pytest.raises((UserError, ValueError), match="Nowhere-v0"):
        environments.parse({"kind": "gymnasium", "id": "Nowhere-v0"})


def test_the_template_is_a_working_environment(tmp_path, monkeypatch):
    import importlib.util
    import sys

    monkeypatch.setattr(environments, "_entries", dict(environments._entries))
    source, test = new_environment("line_walk", tmp_path, tmp_path)
    for path in (source, test):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
    module.test_line_walk_keeps_the_contract()
    module.test_the_expert_of_line_walk_beats_a_random_agent()
    for name in ("line_walk", "Not A Name", "mathematics"):
        with pytest.raises(UserError):
            new_environment(name, tmp_path, tmp_path)
