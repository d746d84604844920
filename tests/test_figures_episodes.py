"""What episodes look like."""

import pytest

from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.figures import episodes as figures
from rlkit.panels import episodes as views

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


def test_the_widget_steps_through_the_same_problem_in_every_group(groups):
    box = views.compare_episodes(groups)
    (problem, step), page = box.children[0].children, box.children[1]
    assert "expert</b>: return 8.5" in page.value
    problem.value, step.value = 2, 1
    assert page.value == views.page_of(groups, 2, 1) and page.value.count("<tr>") == 2
    bundle = box._repr_mimebundle_()  # what a viewer without widgets falls back to
    assert bundle["text/html"] == views.page_of(groups, 0, 9) and len(bundle) == 3
    with pytest.raises(UserError, match="same problems"):
        views.compare_episodes({"a": groups["expert"], "b": groups["expert"][:3]})


def test_texts_of_a_model_are_escaped(groups):
    class Html(ExpertAgent):
        def select_action(self, state, valid_actions):
            return "<script>alert(1)</script>", {}

    (episode,) = run_episodes(Html(), ENV, ["3x + 7 = 16"])
    assert "<script>" not in views.page_of({"a": [episode]}, 0, 3)


def test_the_distribution_of_returns_keeps_each_of_them(groups):
    table = figures.reward_distribution(groups).table
    assert table.groupby("group").size().to_dict() == {"expert": 5, "random": 5}
    assert set(table.loc[table["group"] == "expert", "return"]) == {8.5}


@pytest.mark.parametrize("draw", [figures.reward_by_step, figures.reward_distribution])
def test_nothing_to_draw_is_one_sentence(draw):
    for nothing in ({}, {"a": []}):
        with pytest.raises(UserError, match="nothing to draw"):
            draw(nothing)
