"""TextArena's games as environments."""

import random

from rlkit.environments import check_environment, environments
from rlkit.environments.adapters import FromTextArena, TextArenaEnv


def play(env: FromTextArena, seed: int) -> list[tuple[str, float, bool]]:
    """Numbers by bisection, from the hints."""
    low, high, heard = 1, 20, [(env.reset({"seed": seed}), 0.0, False)]
    while not heard[-1][2]:
        guess = (low + high) // 2
        result = env.step(*env.parse_action(f"I try [{guess}]"))
        heard.append((result.observation, result.reward, result.done))
        low, high = (guess + 1, high) if "higher" in result.observation else (low, guess - 1)
    assert result.info["success"]
    return heard


def test_a_game_is_won_by_its_hints_and_is_the_same_for_a_seed():
    env = FromTextArena()
    random.seed(5)
    before = random.getstate()
    first = play(env, 3)
    assert random.getstate() == before  # the game draws from a generator of its own
    assert "number between 1 and 20" in first[0][0] and first[-1][1] == 1.0
    assert play(env.model_copy(deep=True), 3) == first
    assert "number between" not in first[1][0]  # only what is new
    check_environment(env, episodes=3)


def test_an_environment_is_played_under_textarenas_interface():
    env = TextArenaEnv(environments.parse({"kind": "line_walk"}))
    env.reset(num_players=1, seed=4)
    player, seen = env.get_observation()
    assert player == 0 and "Walk to the goal" in seen and "move 2" in seen
    done = False
    while not done:
        done, info = env.step(env.environment.format_action(*env.environment.expert()))
    rewards, facts = env.close()
    assert info["success"] and facts[0]["success"] and rewards[0] > 0
