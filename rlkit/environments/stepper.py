"""The widget of `rlkit.environments.views.compare_episodes`."""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from rlkit.environments.trajectory import Trajectory
from rlkit.environments.views import page_of


class Stepper(ipywidgets.VBox):
    """Sliders for the problem and the step above the page of both; without a front end, the first page."""

    def __init__(self, groups: Mapping[str, Sequence[Trajectory]]) -> None:
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
        """The widget, and beside it the page that viewers without widgets show."""
        return {**(super()._repr_mimebundle_(**options) or {}), "text/html": self.fallback}
