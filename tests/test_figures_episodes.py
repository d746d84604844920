"""What episodes look like."""

import pytest

from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.figures import episodes as figures

ENV = Mathematics(families=("linear",))


@pytest.fixture(scope="module")
def groups():
    problems = ENV.problems("test", 5)
    return {
        "expert": run_episodes(ExpertAgent(), ENV, problems),
        "random": run_episodes(RandomAgent(), ENV, problems),
    }


def test_reward_by_step_sums_to_the_mean_return(groups):
    table = figures.reward_by_step(groups).table
    sums = table.groupby("group")["reward"].sum()
    assert sums["expert"] == 8.5
    assert sums["random"] == pytest.approx(sum(e.total_reward for e in groups["random"]) / 5)


def test_steps_of_an_episode_are_whole(groups):
    (ax,) = figures.reward_by_step(groups).figure.axes
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_the_transition_map_keeps_the_counts_it_draws(groups):
    drawing = figures.transition_map(groups["expert"], list(ENV.actions))
    counts = drawing.table.set_index("action")
    assert counts.loc["start", "identify_operation"] == 5 and counts.loc["state_answer", "end"] == 5
    assert drawing._repr_png_().startswith(b"\x89PNG")


def test_the_distribution_of_returns_keeps_each_of_them(groups):
    table = figures.reward_distribution(groups).table
    assert table.groupby("group").size().to_dict() == {"expert": 5, "random": 5}
    assert set(table.loc[table["group"] == "expert", "return"]) == {8.5}


@pytest.mark.parametrize("draw", [figures.reward_by_step, figures.reward_distribution])
@pytest.mark.parametrize("groups", [{}, {"a": []}])
def test_nothing_to_draw_is_one_sentence(draw, groups):
    with pytest.raises(UserError, match="No group has an episode"):
        draw(groups)
