"""Episodes to look at: curves, a heat map of action transitions, and a widget that steps through them."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.environments.metrics import transition_counts
from rlkit.environments.trajectory import Trajectory, steps_frame
from rlkit.errors import UserError

if TYPE_CHECKING:
    from rlkit.figures import Drawing


def reward_by_step(groups: Mapping[str, Sequence[Trajectory]], venue: str = "neurips") -> "Drawing":
    """Mean reward of the k-th action, a line a group; episodes that have ended count as 0, so a line's sum is
    its group's mean return."""
    import pandas as pd
    from matplotlib.ticker import MaxNLocator

    from rlkit.figures import Drawing, label_axes, new_axes, styled

    tables = []
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name, episodes in groups.items():
            sums = steps_frame(episodes).groupby("step")["reward"].sum() / len(episodes)
            table = pd.DataFrame({"group": name, "step": sums.index, "reward": sums.to_numpy()})
            ax.plot(table["step"], table["reward"], marker="o", label=f"{name} (return {sums.sum():.2f})")
            tables.append(table)
        ax.axhline(0, color="0.7", linewidth=0.6)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        label_axes(ax, "step of the episode", "reward, mean over episodes")
        ax.legend()
    return Drawing(fig, pd.concat(tables, ignore_index=True))


def transition_map(episodes: Sequence[Trajectory], names: Sequence[str], venue: str = "neurips") -> "Drawing":
    """How often each action (row) is followed by each other (column), as shares of the row."""
    import seaborn

    from rlkit.figures import Drawing, new_axes, styled

    counts = transition_counts(episodes, names)
    counts = counts.loc[counts.sum(axis=1) > 0, counts.sum(axis=0) > 0]
    shares = counts.div(counts.sum(axis=1), axis=0)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.8)
        seaborn.heatmap(
            shares, ax=ax, cmap="Blues", vmin=0, vmax=1, annot=True, fmt=".2f", annot_kws={"size": 6}
        )
        ax.set_xlabel("next action")
        ax.set_ylabel("action")
    return Drawing(fig, counts.rename_axis("action").reset_index())


def compare_episodes(groups: Mapping[str, Sequence[Trajectory]]) -> Any:
    """A widget: choose a problem, step through it, and see what each group's policy did with it.

    Where no widgets run (a saved notebook, a printed page) the first problem's tables stand in its place.

    Raises:
        UserError: the groups did not play the same problems.
    """
    from rlkit.environments.stepper import Stepper

    problems = [[dict(t.problem) for t in episodes] for episodes in groups.values()]
    if not problems or not problems[0] or any(p != problems[0] for p in problems):
        raise UserError("The groups to compare must have played the same problems in the same order.")
    return Stepper(groups)


def page_of(groups: Mapping[str, Sequence[Trajectory]], problem: int, step: int) -> str:
    """The first `step` steps of a problem's episode in every group, side by side, as HTML (texts escaped)."""
    parts = []
    for name, episodes in groups.items():
        episode = episodes[problem]
        table = episode.to_frame().head(step).to_html(index=False, border=0)
        outcome = "success" if episode.success else "no success"
        title = f"<b>{html.escape(name)}</b>: return {episode.total_reward:.1f}, {len(episode)} actions, {outcome}"
        parts.append(f"<div style='margin-right:2em'>{title}{table}</div>")
    return f"<div style='display:flex;flex-wrap:wrap'>{''.join(parts)}</div>"
