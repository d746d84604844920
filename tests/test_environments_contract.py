"""What every environment promises, and that the checker notices when one does not."""

import importlib.util
import threading
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np  # noqa: F401 (of cases)
import pytest
from cases import cases, table
from pydantic import PrivateAttr
from typer.testing import CliRunner

from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.cli import app
from rlkit.environments import ActionResult, BaseEnvironment, check_environment, environments
from rlkit.environments.authoring import new_environment
from rlkit.environments.line_walk import LineWalkWorld
from rlkit.environments.rollout import environment_task
from rlkit.errors import UserError
from rlkit.registry import PLUGINS


class Endless(LineWalkWorld):
    """A walk that nothing ends."""

    expert: Any = BaseEnvironment.expert

    def get_valid_actions(self):
        return ["move"]


@pytest.mark.parametrize("kind", ["mathematics", "business", "creative_writing", "line_walk"])
def test_every_domain_keeps_the_contract(kind):
    check_environment(environments.parse(kind), episodes=4)


def test_an_episode_that_never_ends_is_truncated_without_success():
    with pytest.raises(UserError, match="no episode ended within max_steps = 20"):
        check_environment(Endless(), episodes=3)
    env = Endless(max_steps=5)
    env.reset({"goal": 9})
    results = [env.step("move", "1") for _ in range(5)]
    assert [r.done for r in results] == [False] * 4 + [True]
    assert results[-1].info["truncated"] and not results[-1].info["success"]
    assert env.step("move", "1").info["valid"] is False  # after the end: no exception, no reward
    assert env.step("move", "1").reward == 0.0


def test_an_invalid_action_costs_and_changes_nothing():
    env = Endless(invalid_reward=-0.25)
    env.reset({"goal": 9})
    env.step("move", {"value": 3})
    for action, params in (("fly", None), ("move", {"value": "x"})):
        result = env.step(action, params)
        assert (result.reward, result.done, result.info["valid"]) == (-0.25, False, False)
    assert "Valid actions: move" in env.step("fly").observation
    assert env.step("move", {"value": 2}).observation == "at 5, goal 9"


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_share_no_problem_for_any_seeds(seed):
    few = {"families": ["linear"], "largest_solution": 2, "largest_number": 4}
    env = environments.parse({"kind": "mathematics", **few})
    train = {str(p) for p in env.problems("train", 300, seed)}
    test = {str(p) for other in range(3) for p in env.problems("test", 100, other)}
    assert train and test and not train & test


@pytest.mark.parametrize(("kind", "problem", "words"), cases("unplayable_problems"))
def test_a_problem_that_cannot_be_played_is_refused_before_it_begins(kind, problem, words):
    with pytest.raises(UserError, match=words):
        environments.parse(kind).reset(problem)


@pytest.mark.parametrize(("world", "problem", "last"), cases("problems_that_users_state"))
def test_experts_master_problems_that_users_state(world, problem, last):
    (episode,) = run_episodes(ExpertAgent(), environments.parse(world), [problem])
    assert episode.transitions[-1].text == last and all(t.valid for t in episode.transitions)
    assert episode.success or last == "finish"


class Board(BaseEnvironment):
    """Keeps its state in a list that it changes in place."""

    actions: ClassVar[dict[str, str]] = {"add": "one more", "end": "finish"}
    kind: Literal["board"] = "board"
    _board: list = PrivateAttr(default_factory=list)

    def problem(self, rng):
        return {"n": int(rng.integers(1000))}

    def begin(self, problem):
        self._board[:] = [problem["n"]]
        return str(self._board)

    def act(self, action, params):
        self._board.append(1)
        return ActionResult(str(self._board), 1.0, action == "end", {"success": True})

    def expert(self):
        return ("add", {}) if len(self._board) < 3 else ("end", {})


def test_episodes_beside_each_other_share_nothing():
    env = Board()
    check_environment(env, episodes=3)
    episodes = run_episodes(ExpertAgent(), env, [{"n": 7}, {"n": 8}, {"n": 9}])
    assert [e.transitions[-1].next_state for e in episodes] == [f"[{n}, 1, 1, 1]" for n in (7, 8, 9)]
    env.reset({"n": 1})
    environment_task(env, {"n": 2})
    assert env.step("add").observation == "[1, 1]"


class Leaky(Board):
    """Forgets to begin anew."""

    def begin(self, problem):
        self._board.append(problem["n"])
        return str(self._board)


def test_the_checker_notices_an_episode_that_goes_on_from_the_last_one():
    with pytest.raises(UserError, match="different results"):
        check_environment(Leaky(), episodes=2)


NINES = '{"value": 9' + "9" * 5000 + "}"
HUGE = [(f"add_terms {text}", "add_terms", {"value": text}) for text in (NINES, '{"a":' * 5000)]


@pytest.mark.parametrize(("text", "action", "params"), [*cases("actions"), *HUGE])
def test_an_action_is_read_out_of_the_markup_and_prose_of_instruct_models(text, action, params):
    assert environments.parse("mathematics").parse_action(text) == (action, params)


class Tools(BaseEnvironment):
    """Tools with several text arguments."""

    actions: ClassVar[dict[str, str]] = {"search": "query and most", "send_mail": "to and text"}

    def step(self, action, params=None):
        return ActionResult(f"{action}: {params}", 1.0, True, {"success": True})

    def sample_params(self, action, rng):
        return {"to": "Ann (boss)", "text": 'say "hi"\nand {bye}'} if action == "send_mail" else {"query": "a [b]"}


@pytest.mark.parametrize("text", [text for (text,) in cases("tool_calls")])
def test_tools_take_several_text_arguments(text):
    env = Tools()
    check_environment(env, episodes=2)
    env.reset("find")
    assert env.step(*env.parse_action(text)).observation == "search: {'query': 'cheap flights', 'most': 3}"
    assert env.parse_action("search: {'query': 1}")[0] == "search"


@pytest.mark.parametrize(("text", "observation"), cases("actions_in_words"))
def test_words_around_algebra_are_no_part_of_it(text, observation):
    env = environments.parse("mathematics")
    env.reset("3x + 7 = 16")
    assert env.step(*env.parse_action(text)).observation == observation


def test_a_gymnasium_environment_keeps_the_contract():
    lake = {"id": "FrozenLake-v1", "names": ["left", "down", "right", "up"]}
    env = environments.parse({"kind": "gymnasium", "options": {"is_slippery": False}, **lake})
    check_environment(env, episodes=3)
    assert env.reset({"seed": 0}).startswith("[S]FFF")  # the agent's place is marked without terminal colours


@pytest.mark.parametrize("name", ["my_walk", "state", "action_result", "invalid_action", "base_environment"])
def test_the_template_is_a_working_environment_under_any_name(tmp_path, monkeypatch, name):
    monkeypatch.setenv(PLUGINS, "")
    _, path = new_environment(name, tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, f"test_{name}_keeps_the_contract")()


@pytest.mark.parametrize("name", ["Not A Name", "mathematics", "class", "line_walk"])
def test_a_name_that_cannot_be_a_new_environments_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="The name"):
        new_environment(name, tmp_path)


def test_a_new_environment_is_told_the_command_that_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["new", "environment", "harbour"]).output
    assert "RLKIT_PLUGINS=harbour.py papermill" in shown and Path("test_harbour.py").exists()


class Sloppy(BaseEnvironment):
    """The short form; each class below breaks one promise."""

    def get_valid_actions(self):
        return ["a", "b"]

    def step(self, action, params=None):
        return ActionResult("seen", 1.0, True, {"success": True})


def returns(name, expression):
    """A class whose method `name` returns what a Python expression gives, or raises it."""

    def method(self, *args):
        result = eval(expression)
        if isinstance(result, BaseException):
            raise result
        return result

    members = {name: method, "__module__": __name__}
    globals()["World"] = type("World", (Sloppy,), members)  # where pickle finds it
    return globals()["World"]


async def waits():
    return None


@pytest.mark.parametrize(("name", "returned", "words"), cases("sloppy_environments"))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_sloppy_environment_is_one_sentence_from_the_checker_and_from_an_episode(name, returned, words):
    env = returns(name, returned)()
    with pytest.raises(UserError, match=words) as told:
        check_environment(env, episodes=3)
    assert str(told.value).count("\n") <= 2
    with pytest.raises(UserError, match=words):
        agent = ExpertAgent() if name == "expert" else RandomAgent()
        problems = ["x"] if name != "problem" else env.problems("train", 1) + env.problems("test", 1)
        run_episodes(agent, env, problems)


def test_what_renders_badly_or_cannot_be_copied_is_one_sentence():
    with pytest.raises(UserError, match=r"answered solution\(\) with ZeroDivisionError"):
        run_episodes(RandomAgent(), returns("render", "ZeroDivisionError()")(), ["x"])
    locked = Sloppy()
    locked.lock = threading.Lock()
    with pytest.raises(UserError, match="cannot be copied .*: make in reset or step what cannot"):
        run_episodes(RandomAgent(), locked, ["x"])
    check_environment(returns("sample_params", "'7'")(), episodes=2)  # a value alone
    check_environment(returns("step", "ActionResult('', np.int64(1), True)")(), episodes=2)


class Position(Sloppy):
    position: int = 0

    def step(self, action, params=None):
        self.position += 1
        return super().step(action, params)


def test_what_belongs_to_every_episode_cannot_be_set_by_one():
    with pytest.raises(UserError, match="'position' of 'Position' is an option, which stays as it is: keep"):
        check_environment(Position(), episodes=2)
    env: Any = Sloppy()
    env.state = env.problem = {"free": 1}
    with pytest.raises(UserError, match="'messages' of 'Sloppy' belongs to every environment"):
        env.messages = []


@pytest.mark.parametrize(*table("action_names"))
def test_names_of_any_words_are_told_apart(names):
    env = returns("get_valid_actions", repr(names))()
    check_environment(env, episodes=3)
    env.reset("x")
    assert [env.parse_action(f"Action: {name}")[0] for name in names] == names


@pytest.mark.parametrize(("value", "words"), cases("impossible_environments"))
def test_an_environment_that_cannot_be_is_one_sentence(value, words):
    with pytest.raises(UserError, match=words) as told:
        environments.parse(value)
    assert "\n" not in str(told.value)
