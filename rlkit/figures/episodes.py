"""Figures of episodes in an environment: rewards by step, their distribution, and which action follows which."""

from collections.abc import Mapping, Sequence

import pandas as pd
import seaborn
from matplotlib.ticker import MaxNLocator

from rlkit.environments.episode import Trajectory
from rlkit.errors import UserError
from rlkit.figures.drawing import Drawing
from rlkit.figures.labels_and_looks import label_axes, new_axes, styled
from rlkit.measures.episodes import steps_frame, transition_counts

Groups = Mapping[str, Sequence[Trajectory]]  # the episodes of each policy


def reward_by_step(groups: Groups, venue: str = "neurips") -> Drawing:
    """Mean reward of the k-th action, a line a group; ended episodes count as 0: a line's sum is the mean return."""
    if not any(groups.values()):
        raise UserError("No group has an episode: play some with run_episodes.")
    sums = {name: steps_frame(es).groupby("step")["reward"].sum() / len(es) for name, es in groups.items()}
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        for name, rewards in sums.items():
            total = f"{rewards.sum():z.2f}".replace("-", "−")
            ax.plot(rewards.index, rewards, marker="o", label=f"{name} (return {total})")
        ax.axhline(0, color="0.7", linewidth=0.6)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        label_axes(ax, "step of the episode", "reward, mean over episodes")
        ax.legend()
    return Drawing(fig, pd.concat(sums, names=["group"]).reset_index())


def reward_distribution(groups: Groups, venue: str = "neurips") -> Drawing:
    """The share of episodes whose return is at most x, a line a group."""
    if not any(groups.values()):
        raise UserError("No group has an episode: play some with run_episodes.")
    rows = [(name, episode.total_reward) for name, episodes in groups.items() for episode in episodes]
    table = pd.DataFrame(rows, columns=["group", "return"])
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.5)
        seaborn.ecdfplot(table, x="return", hue="group", ax=ax)
        label_axes(ax, "return of the episode", "share of episodes")
        seaborn.move_legend(ax, "center left", bbox_to_anchor=(1, 0.5))
    return Drawing(fig, table)


def transition_map(episodes: Sequence[Trajectory], names: Sequence[str], venue: str = "neurips") -> Drawing:
    """How often each action (row) is followed by each other (column), as shares of the row."""
    counts = transition_counts(episodes, names)
    if not counts[list(names)].to_numpy().any():
        raise UserError(f"None of the {len(episodes)} episodes has a valid action: there is nothing to draw.")
    counts = counts.loc[counts.sum(axis=1) > 0, counts.sum(axis=0) > 0]
    shares = counts.div(counts.sum(axis=1), axis=0)
    with styled():
        fig, (ax,) = new_axes(venue, 1, 0.8)
        seaborn.heatmap(shares, ax=ax, cmap="Blues", vmin=0, vmax=1, annot=True, fmt=".2f", annot_kws={"size": 6})
        ax.set(xlabel="next action", ylabel="action")
    return Drawing(fig, counts.rename_axis("action").reset_index())
