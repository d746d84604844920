"""What every measure starts from: order of cells, ends of runs, learning curves, and the runs behind a table."""

import re
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.results.progress import ENDING
from rlkit.results.store import plain

FACTS = (
    "study", "seed", "cell", "held_out", "model.path", "status", "commit", "dirty", "data_hash", "held_out_hash",
    "scorer", "scorer_version",
)  # fmt: skip


def in_order(df: pd.DataFrame, by: str = "model.path") -> pd.DataFrame:
    """One row a value of `by`, smallest model first, then in the order of the study's file: `by`, model.path, its size,
    and of cells and variants variant and variant_place. Tables of measures remember theirs."""
    known = pd.DataFrame(df.attrs.get("order", []))
    if by in known and set(df[by]) <= set(known[by]):
        return known
    size, variant = "parameters_non_embedding", ["variant", "variant_place"] * (by in ("variant", "cell"))
    wanted = dict.fromkeys((by, "model.path", size, *variant))
    rows = df[[c for c in wanted if c in df]].dropna(subset=by).drop_duplicates(by)
    sized = by != "variant" and size in rows and rows[size].notna().any()
    keys = [k for k in (size if sized else "", "variant_place", by) if k in rows]
    return rows.sort_values(keys, key=_natural)


def _natural(values: pd.Series) -> pd.Series:
    """Keys that sort numbers, and texts by the numbers in them: 32 before 128, 0.0001 before 0.001."""
    number = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
    return values.map(lambda text: number.sub(lambda digits: f"{float(digits[0]):032.15f}", str(text)))


def runs_behind(df: pd.DataFrame) -> list[dict[str, Any]]:
    """The `FACTS` of each run in a table, as JSON values; of a table of measures those that it remembers."""
    if "sources" in df.attrs or "run" not in df:
        return df.attrs.get("sources", [])
    facts = df[["run", *(name for name in FACTS if name in df)]]
    rows = facts.drop_duplicates("run").sort_values("run").astype(object)
    return [plain(row[row.notna()].to_dict()) for _, row in rows.iterrows()]


def remember(table: pd.DataFrame, df: pd.DataFrame, by: str) -> pd.DataFrame:
    """The table with `sources` (`runs_behind`) and `order` (`in_order`) of the runs in `df` in its attrs."""
    table.attrs |= {"sources": runs_behind(df), "order": plain(in_order(df, by).to_dict("records"))}
    return table


def ends(evals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The samples of each run's first evaluation ("before") and last ("after")."""
    steps = evals.groupby("run")["step"].agg(before="min", after="max")
    return {when: evals[evals["step"] == evals["run"].map(steps[when])] for when in steps}


def graded_ends(evals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """`ends` without samples that could not be graded, `correct` as 0 or 1."""
    graded = {when: part[part["correct"].notna()] for when, part in ends(evals).items()}
    return {when: part.assign(correct=part["correct"].astype(float)) for when, part in graded.items()}


def curve_table(df: pd.DataFrame, x: str, metric: str, by: str) -> pd.DataFrame:
    """One row a run and step: `by`, run, seed, step, x, metric; in the order of `df`."""
    whole = df[df["data_source"] == "all"]
    wanted = [metric] if x == "step" else [metric, x]
    for name in wanted:
        if not (whole["metric"] == name).any():
            raise UserError(f"The metric {name!r} was not logged by any of these runs.")
    keys = list(dict.fromkeys([by, "run", "seed", "step"]))
    chosen = whole[whole["metric"].isin(wanted)]
    wide = chosen.pivot_table("value", keys, "metric", observed=True).reset_index().rename_axis(columns=None)
    return remember(wide.dropna(subset=wanted).reset_index(drop=True), df, by)


def first_at(x: np.ndarray, y: np.ndarray, level: float) -> float:
    """Where the best-so-far of a curve, straight between its points, first reaches a level; NaN when it never does."""
    best = np.maximum.accumulate(y)
    place = int(np.searchsorted(best, level))  # of the first point that is there: a plateau has several
    if place == len(best):
        return np.nan
    part = slice(max(place - 1, 0), place + 1)
    return float(np.interp(level, best[part], x[part]))


def equal_cells_sentence(points: pd.DataFrame) -> str:
    """A caution that names cells whose runs (`rlkit.measures.summary.final`) ended with the same gradient, score and
    pass@1 to the last bit, seed for seed: what tells the cells apart had no effect. Empty where there are none."""
    if not {"actor/grad_norm", "seed"} <= set(points):
        return ""
    told, found = ["seed", *(c for c in ENDING if c in points)], {}
    for cell, part in points.sort_values("seed").groupby("cell", sort=False, observed=True):
        found.setdefault(tuple(part[told].itertuples(index=False, name=None)), []).append(str(cell))
    groups = "; ".join(", ".join(sorted(cells)) for cells in found.values() if len(cells) > 1)
    return f"Caution: the runs of these cells are identical, step for step: {groups}." if groups else ""
