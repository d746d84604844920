"""A widget that steps through the episodes of several policies, side by side."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from rlkit.environments.trajectory import Trajectory
from rlkit.errors import UserError

Groups = Mapping[str, Sequence[Trajectory]]  # the episodes of each policy


class Comparison(ipywidgets.VBox):
    """Sliders for the problem and the step above the page of both. Where no widgets run (a saved notebook, a printed
    page) the first problem's page stands in its place."""

    def __init__(self, groups: Groups) -> None:
        some = next(iter(groups.values()))
        longest = max(len(t) for episodes in groups.values() for t in episodes)
        self.problem = ipywidgets.IntSlider(0, 0, len(some) - 1, description="problem")
        self.step = ipywidgets.IntSlider(longest, 1, longest, description="step")
        self.fallback = page_of(groups, 0, longest)
        self.page = ipywidgets.HTML(self.fallback)
        super().__init__([ipywidgets.HBox([self.problem, self.step]), self.page])

        def show(_: Any) -> None:
            self.page.value = page_of(groups, self.problem.value, self.step.value)

        self.problem.observe(show, "value")
        self.step.observe(show, "value")

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return {**(super()._repr_mimebundle_(**options) or {}), "text/html": self.fallback}


def compare_episodes(groups: Groups) -> Comparison:
    """A widget: choose a problem, step through it, and see what each group's policy did with it.

    Raises:
        UserError: the groups did not play the same problems.
    """
    problems = [[dict(t.problem) for t in episodes] for episodes in groups.values()]
    if not problems or not problems[0] or any(p != problems[0] for p in problems):
        raise UserError("The groups to compare must have played the same problems in the same order.")
    return Comparison(groups)


def page_of(groups: Groups, problem: int, step: int) -> str:
    """The first `step` steps of a problem's episode in every group, side by side, as HTML (texts escaped)."""
    parts = []
    for name, episodes in groups.items():
        episode = episodes[problem]
        table = episode.to_frame().head(step).to_html(index=False, border=0)
        outcome = "success" if episode.success else "no success"
        title = f"<b>{html.escape(name)}</b>: return {episode.total_reward:.1f}, {len(episode)} actions, {outcome}"
        parts.append(f"<div style='margin-right:2em'>{title}{table}</div>")
    return f"<div style='display:flex;flex-wrap:wrap'>{''.join(parts)}</div>"
