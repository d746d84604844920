"""What a set of episodes is worth, with intervals: before and after training, and beside an expert."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from rlkit.environments.episode import Trajectory
from rlkit.errors import UserError
from rlkit.evaluation import bootstrap_mean, pass_rate
from rlkit.seeds import content_hash, generator

_MEASURES: dict[str, Callable[[Trajectory], float]] = {
    "success": lambda t: float(t.success),
    "return": lambda t: t.total_reward,
    "actions": lambda t: float(len(t)),
    "wasted_actions": lambda t: float(sum(s.reward < 0 for s in t.transitions)),
    "valid_actions": lambda t: float(np.mean([s.valid for s in t.transitions])),
    "structure": lambda t: float(np.mean([s.formatted for s in t.transitions])),
    "completed": lambda t: float(not t.truncated),
}


def episode_metrics(
    groups: Mapping[str, Sequence[Trajectory]], experts: Sequence[Trajectory] | None = None, *, seed: int = 0
) -> pd.DataFrame:
    """One row a group of episodes and metric: group, metric, value, low, high (95 % bootstrap over problems), n.
    Metrics: success (domain accuracy), return, actions, wasted_actions (those that cost), valid_actions, structure (the
    share of turns that are one action as the environment writes it), completed (no limit ended it), and, given the
    expert's episodes on the same problems in the same order, optimality_gap, the share of its return that is missing,
    where that is always positive. A UserError for a group without episodes or steps."""
    rows = []
    for name, episodes in groups.items():
        if not episodes or not all(len(t) for t in episodes):
            raise UserError(f"The group {name!r} has no episodes, or one without any step.")
        values = {metric: [measure(t) for t in episodes] for metric, measure in _MEASURES.items()}
        if experts is not None:
            if [dict(t.problem) for t in episodes] != [dict(t.problem) for t in experts]:
                raise UserError(f"The experts' problems are not those of {name!r}: play the same list.")
            if all(e.total_reward > 0 for e in experts):
                pairs = zip(episodes, experts, strict=True)
                values["optimality_gap"] = [1 - t.total_reward / e.total_reward for t, e in pairs]
        problems = [content_hash(dict(t.problem)) for t in episodes]
        for metric, column in values.items():
            if metric in ("success", "completed"):
                interval = pass_rate(column, problems, average="micro")
            else:
                rng = generator("episode metrics", metric, seed)
                interval = bootstrap_mean(column, problems, rng=rng, draws=2000, average="micro")
            rows.append((name, metric, interval.value, interval.low, interval.high, len(column)))
    return pd.DataFrame(rows, columns=["group", "metric", "value", "low", "high", "n"])


def steps_frame(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """One row a step of many episodes: episode, step, action, reward, valid, success."""
    steps = [(i, k, t, e) for i, e in enumerate(trajectories) for k, t in enumerate(e.transitions, 1)]
    rows = [(i, k, t.action, t.reward, t.valid, e.success) for i, k, t, e in steps]
    return pd.DataFrame(rows, columns=["episode", "step", "action", "reward", "valid", "success"])


def action_table(trajectories: Sequence[Trajectory]) -> pd.DataFrame:
    """One row an action: how often it was taken, and validly, and its mean, least and largest reward."""
    steps = steps_frame(trajectories).groupby("action")
    rewards = {f"reward_{of}": ("reward", of) for of in ("mean", "min", "max")}
    table = steps.agg(count=("reward", "size"), valid=("valid", "mean"), **rewards)
    return table.sort_values("count", ascending=False)


def transition_counts(trajectories: Sequence[Trajectory], names: Sequence[str]) -> pd.DataFrame:
    """How often each valid action (rows, and "start") is followed by each action (columns, and "end")."""
    valid = ([t.action for t in played.transitions if t.action in names] for played in trajectories)
    counts = Counter(pair for actions in valid for pair in pairwise(["start", *actions, "end"]))
    table = [[counts[b, a] for a in [*names, "end"]] for b in ["start", *names]]
    return pd.DataFrame(table, index=["start", *names], columns=[*names, "end"])


def metrics_text(table: pd.DataFrame) -> pd.DataFrame:
    """`episode_metrics` for reading: one row a metric, one column a group, `value [low, high]`."""
    numbers = table[["value", "low", "high"]].to_numpy()
    texts = [f"{v:.3f} [{a:.3f}, {b:.3f}]" for v, a, b in numbers]
    wide = table.assign(text=texts).pivot(index="metric", columns="group", values="text")
    return wide[list(dict.fromkeys(table["group"]))]
