"""Business, creative writing and code: rewards come from the world, and each part can be recomputed."""

import re
from pathlib import Path

import numpy as np
import pytest

from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.agents.trainer import AgenticConfig
from rlkit.environments import creative_writing as quality
from rlkit.environments import environments
from rlkit.environments.business import cvar
from rlkit.environments.code_generation import FAMILIES, failures
from rlkit.params import settings

CASE = {
    "budget": 50,
    "staff": 5,
    "aversion": 0.5,
    "chances": [0.2, 0.5, 0.3],
    "options": {
        "A": {"title": "a", "cost": 40, "staff": 2, "payoffs": [100, 50, 0]},
        "B": {"title": "b", "cost": 10, "staff": 2, "payoffs": [20, 15, 10]},
        "C": {"title": "c", "cost": 20, "staff": 3, "payoffs": [30, 20, 10]},
        "D": {"title": "d", "cost": 60, "staff": 2, "payoffs": [900, 900, 900]},
    },
}


def play(env, problem, *actions):
    env.reset(problem)
    return [env.step(action, {"value": value} if value else None) for action, value in actions]


def test_cvar_is_the_mean_of_the_worst_quarter():
    rng = np.random.default_rng(0)
    values, chances = [10.0, -4.0, 3.0, -20.0], [0.4, 0.3, 0.2, 0.1]
    draws = np.sort(rng.choice(values, 400_000, p=chances))
    assert cvar(values, chances) == pytest.approx(draws[: len(draws) // 4].mean(), abs=0.1)
    assert cvar(values, chances) == pytest.approx((0.1 * -20 + 0.15 * -4) / 0.25)


def test_a_decision_earns_its_share_of_what_was_possible():
    env = environments.parse("business")
    # Worth: A 5 - 0.5·40 = -15, B 4.5 + 0 = 4.5, C -1 - 0.5·10 = -6; D is beyond the budget.
    rewards = {name: play(env, CASE, ("make_decision", name))[0] for name in "ABCD"}
    assert rewards["A"].reward == 0.0 and rewards["B"].reward == 10.0 and rewards["D"].reward == -5.0
    assert rewards["C"].reward == pytest.approx(10 * (-6 + 15) / (4.5 + 15))
    assert [rewards[n].info["success"] for n in "ABCD"] == [False, True, False, False]
    assert env.solution() == "D"


def test_information_costs_and_says_what_is_true():
    env = environments.parse("business")
    looks = (
        ("evaluate_risks", "A"),
        ("analyze_situation", ""),
        ("evaluate_risks", "a"),
        ("identify_options", ""),
    )
    before, market, risks, options = play(env, CASE, *looks)
    assert [r.reward for r in (before, market, risks, options)] == [-0.3, -0.1, -0.3, -0.1]
    assert "from -40 to 60" in before.observation and "EV" not in before.observation
    assert risks.observation == "A: EV 5.0, CVaR -40.0, ROI 12%."
    assert not env.step("make_decision", {"value": "Z"}).info["valid"]


BRIEF = {"topic": "a key", "elements": ["key", "river"], "words": [10, 20], "paragraphs": 1}
TEXT = "The key lay beside the river. Nobody knew who had lost it there."


def test_a_text_earns_the_same_whichever_way_it_came_about():
    env = environments.parse("creative_writing")
    direct = play(env, BRIEF, ("write_paragraph", TEXT))
    detour = play(env, BRIEF, ("write_paragraph", "Bad bad bad bad."), ("edit_content", f"1: {TEXT}"))
    assert sum(r.reward for r in direct) == pytest.approx(sum(r.reward for r in detour))
    spoilt = play(env, BRIEF, ("write_paragraph", TEXT), ("edit_content", "1: key key key key."))
    assert spoilt[1].reward < 0
    assert play(env, BRIEF, ("write_paragraph", TEXT), ("finish", ""))[1].info["success"]


@pytest.mark.parametrize("value", ["²: x.", "9" * 5000 + ": x.", "2: x.", "0: x.", "-1: x.", "1 x.", ": x."])
def test_a_paragraph_that_is_not_there_cannot_be_edited(value):
    env = environments.parse("creative_writing")
    result = play(env, BRIEF, ("write_paragraph", TEXT), ("edit_content", value))[1]
    assert not result.info["valid"] and result.reward == -1.0 and env.render() == TEXT


def test_every_part_of_a_texts_quality_is_visible_and_right():
    env = environments.parse("creative_writing")
    parts = play(env, BRIEF, ("write_paragraph", "The river was was wide. It is an river."))[0].info["parts"]
    assert parts["elements"] == 0.5 and parts["structure"] == 1.0
    assert parts["length"] == pytest.approx(9 / 10)
    assert parts["diversity"] == 1.0 and parts["grammar"] < 1


def test_measures_of_text_by_hand():
    assert quality.distinct("a b a b a b", 2) == pytest.approx(2 / 5)
    assert quality.flesch("The cat sat. The dog ran.") == pytest.approx(206.835 - 1.015 * 3 - 84.6)
    assert quality.grammar("She goes to school every day.") == 1
    assert quality.grammar("She go to school every days.") < 1
    assert quality.sentences("One. Two! ... Three?") == ["One.", "Two!", "Three?"]
    assert quality.mentions("Old keys and rivers", "key") and not quality.mentions("monkey", "key")


PROBLEM = {
    "description": "Write solve(xs) that returns the sum of xs.",
    "reference": "def solve(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total\n",
    "visible": [[[1, 2], 3]],
    "hidden": [[[], 0], [[5] * 40, 200], [[-1], -1]],
}


GOOD = "def solve(xs):\n    return sum(xs)"


def test_a_right_program_earns_visible_and_hidden_tests():
    env = environments.parse("code_generation")
    moves = ("analyze_requirements", ""), ("write_function", GOOD), ("test_code", "")
    look, write, test = play(env, PROBLEM, *moves)
    assert (look.reward, look.observation) == (-0.1, "solve([1, 2]) returns 3.")
    assert write.reward == 0.0
    assert test.reward == pytest.approx(3 + 4) and test.done and test.info["success"]


def test_hidden_tests_find_a_program_that_knows_the_visible_ones_only():
    env = environments.parse("code_generation")
    special = "def solve(xs):\n    return 3 if xs else 0"
    result = play(env, PROBLEM, ("write_function", special), ("test_code", ""))[1]
    assert result.done and not result.info["success"] and result.info["hidden"] == pytest.approx(1 / 3)
    assert result.reward == pytest.approx(3 + 4 / 3)


def test_debugging_after_a_failed_test():
    env = environments.parse("code_generation")
    wrong = "def solve(xs):\n    return len(xs)"
    _, failed = play(env, PROBLEM, ("write_function", wrong), ("test_code", ""))
    assert failed.reward == -0.2 and "should return 3, but it returned 2" in failed.observation
    assert env.step("write_function", {"value": f"```python\n{GOOD}\n```"}).info["valid"]
    assert env.step("test_code").info["success"]


@pytest.mark.parametrize("source", [
    "import sys\nprint('[[\"3\", 1, null]]')\nsys.exit(0)\ndef solve(xs): ...",
    "def solve(xs):\n    import os\n    os.write(1, b'[[\"3\", 1, null]]')\n    os._exit(0)",
    "def solve(xs):\n    return open('/etc/passwd').read()",
    "def solve(xs):\n    return solve(xs)",
    "def solve(xs):\n    return 3 == 3",
    "def solve(xs):\n    return float(sum(xs))",
])  # fmt: skip
def test_programs_that_cheat_or_break_pass_no_hidden_test(source):
    env = environments.parse("code_generation")
    env.reset(PROBLEM)
    if env.step("write_function", {"value": source}).info["valid"]:
        result = env.step("test_code")
        assert not result.info.get("success") and result.info.get("hidden", 0.0) == 0.0


def test_a_program_that_hangs_is_ended():
    env = environments.parse({"kind": "code_generation", "timeout": 1.0})
    endless = "def solve(xs):\n    while True: pass"
    _, result = play(env, PROBLEM, ("write_function", endless), ("test_code", ""))
    assert "longer than 1 s" in result.observation and not result.done


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


@pytest.mark.parametrize("kind", ["business", "creative_writing", "code_generation"])
def test_the_expert_succeeds_and_beats_chance(kind):
    env = environments.parse(kind)
    problems = env.problems("test", 4, 2)
    expert, random = (run_episodes(agent, env, problems) for agent in (ExpertAgent(), RandomAgent()))
    assert all(e.success for e in expert)
    assert np.mean([e.total_reward for e in expert]) > np.mean([e.total_reward for e in random]) + 2


@pytest.mark.parametrize(
    "path", sorted(Path("params").glob("custom_domain*.yaml")), ids=lambda path: path.stem
)
def test_a_model_trained_by_a_params_file_has_room_for_what_the_expert_says(path):
    chosen = settings(str(path), {})
    env = environments.parse({"kind": chosen["kind"], **chosen["options"]})
    training = AgenticConfig(**chosen["training"])
    for episode in run_episodes(ExpertAgent(), env, env.problems("test", 20)):
        said = [len(step.text.encode()) for step in episode.transitions]  # a ladder model's tokens are bytes
        heard = sum(len(step.next_state.encode()) for step in episode.transitions)
        assert episode.success and max(said) < training.max_turn_length
        assert sum(said) + heard + 40 * len(said) < training.max_response_length
