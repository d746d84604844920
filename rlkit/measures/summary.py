"""A study's analysis: the order of its cells, its curves and ends, pass@1 before and after, final points, what the law
predicted; and its summary as text."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.evaluation import pass_rate
from rlkit.files import read_json, write_text
from rlkit.laws.fitting import LawFit
from rlkit.laws.planning import seeds_needed
from rlkit.results.read import read_evals, run_facts, run_folders, suite_names
from rlkit.results.store import plain

FACTS = (
    "study", "seed", "cell", "held_out", "model.path", "status", "commit", "dirty", "data_hash", "held_out_hash",
    "scorer", "scorer_version",
)  # fmt: skip
ENDING = ("actor/grad_norm", "critic/score/mean", "eval/pass@1")  # tell two trainings apart to the last bit
KEPT = ("held_out", "model.path", "parameters_non_embedding", "variant", "variant_place")


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


def before_after(evals: pd.DataFrame) -> pd.DataFrame:
    """pass@1 of every cell at its runs' first and last evaluation, with intervals over problems (`pass_rate`). Samples
    of a cell's seeds are pooled; a task with all its samples is one cluster. `attrs["ungraded"]` names cells without a
    graded sample at either end, which have no row. Returns one row a cell and `when` (before, after), smallest model
    first: pass@1, low, high, tasks, samples, ungraded, runs, steps_least, steps and the cell's `KEPT` columns."""
    at, missing = ends(evals), ungraded(evals)
    cells = [cell for cell in in_order(evals, "cell")["cell"] if cell not in missing]
    if not cells:
        raise UserError("No cell of these runs has a graded sample both before and after training.")
    both = pd.concat([part.assign(when=when) for when, part in at.items()])
    rates = pass_rates(both, ["cell", "when"]).set_index(["cell", "when"])
    table = rates.loc[[(cell, when) for cell in cells for when in at]].reset_index()
    table.attrs |= {"sources": runs_behind(evals), "ungraded": missing}
    return table


def ungraded(evals: pd.DataFrame) -> list[str]:
    """The cells without a graded sample at their runs' first or last evaluation, of which nothing can be said."""
    graded = [set(part.loc[part["correct"].notna(), "cell"]) for part in ends(evals).values()]
    return sorted(set(evals["cell"]) - set.intersection(*graded))


def unequal_steps(change: pd.DataFrame) -> str:
    """A caution, in words, where runs of `before_after` ended at different steps; empty where all ended at the same."""
    after = change[change["when"] == "after"]
    least, most = after["steps_least"].min(), after["steps"].max()
    return "" if least == most else f"Caution: runs of unequal length side by side, {least} to {most} steps."


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


def pass_rates(evals: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row a combination of `by` with a graded sample: pass@1, low, high and counts, pooled as by `before_after`."""
    rows = []
    for names, part in evals.groupby(list(by)):
        if len(graded := part[part["correct"].notna()]):
            mean = pass_rate(graded["correct"].to_numpy(float), graded["task_id"].to_numpy())
            row = {**dict(zip(by, names, strict=True)), "pass@1": mean.value}
            row |= {"low": mean.low, "high": mean.high, "tasks": mean.prompts, "samples": len(graded)}
            row |= {"ungraded": len(part) - len(graded), "runs": part["run"].nunique()}
            row |= {key: part[key].iloc[0] for key in KEPT if key in part}
            rows.append(row | {"steps_least": part["step"].min(), "steps": part["step"].max()})
    return pd.DataFrame(rows)


def suite_changes(folder: str | Path) -> dict[str, pd.DataFrame]:
    """`before_after` of each of `evaluation.suites` with a graded sample at both ends, by its name."""
    found = {}
    for name in suite_names(folder):
        with suppress(UserError):
            found[name] = before_after(read_evals(folder, name).dropna(subset="cell"))
    return found


def final(df: pd.DataFrame) -> pd.DataFrame:
    """One row a run of the study's file with a graded sample at its last evaluation: its metrics there, its
    configuration, and `error` = 1 - pass@1. A UserError where there is none."""
    whole = df[df["data_source"] == "all"]
    if "cell" in whole and len(whole):
        whole = whole.dropna(subset="cell")
        if whole.empty:
            raise UserError("None of these runs is one that the study's file asks for: nothing to compare.")
    last = whole[whole["metric"] == "eval/pass@1"].groupby("run")["step"].max()
    if last.empty:
        raise UserError("None of these runs has been evaluated: there is no metric eval/pass@1.")
    at_end = whole[whole["step"] == whole["run"].map(last)]
    metrics = at_end.pivot_table("value", "run", "metric").copy()
    described = at_end.drop(columns=["metric", "value", "data_source"]).groupby("run").first().copy()
    table = described.join(metrics).reset_index().dropna(subset="eval/pass@1")
    return table.assign(error=1 - table["eval/pass@1"]).sort_values(["parameters_non_embedding", "seed"])


def made_with(path: str | Path) -> pd.DataFrame:
    """One row a run under a folder: cell, status, steps, commit (with a + where files were changed), versions."""
    rows, folders = [], run_folders(path)
    for folder, facts in zip(folders, run_facts(folders), strict=True):
        info = read_json(folder / "run.json")
        commit = str(facts.get("commit", ""))[:10] + ("+" if facts.get("dirty") else "")
        known, steps = info.get("versions", {}), info.get("summary", {}).get("steps")
        versions = {name: known.get(name) for name in ("python", "torch", "transformers", "verl", "vllm")}
        rows.append({"run": folder.name, "cell": facts["cell"], "status": facts["status"], "steps": steps,
                     "commit": commit, **versions})  # fmt: skip
    return pd.DataFrame(rows).set_index("run").dropna(axis="columns", how="all")


def held_out_error(fit: LawFit, points: pd.DataFrame) -> pd.DataFrame:
    """One row a held-out cell: observed, the mean of the law's y over its runs; runs; the prediction with the ends of
    the band in which the mean of so many new runs is expected; and error = prediction - observed."""
    y, held = fit.table.names["y"], points[points["held_out"].astype(bool)]
    means = held.groupby("cell", as_index=False).agg(dict.fromkeys(fit.table.names.values(), "mean"))
    table = means.rename(columns={y: "observed"})
    if table.empty:
        return table
    table["runs"] = table["cell"].map(held.groupby("cell").size())
    parts = table.groupby("runs")
    bands = [fit.predict(part, "prediction", repeats=int(str(runs))) for runs, part in parts]
    return table.join(pd.concat(bands)).assign(error=lambda t: t["prediction"] - t["observed"])


def outside(missed: Iterable[Mapping[Any, Any]]) -> list[str]:
    """A sentence for each held-out cell (a row of `held_out_error`) that its interval does not hold."""
    cells = (row["cell"] for row in missed if not row["low"] <= row["observed"] <= row["high"])
    return [f"{cell} lies outside the interval that the law foretold for it." for cell in cells]


def seeds_to_show(differences: pd.DataFrame) -> list[str]:
    """`rlkit.laws.planning.seeds_needed` for a difference of 0.02, from the spread between seeds and the interval over
    problems that were measured; none of one seed a cell."""
    if differences["spread"].isna().all():
        return []
    spread = float((differences["spread"] ** 2).mean() ** 0.5)
    return [seeds_needed(0.02, spread, float((differences["high"] - differences["low"]).mean()) / (2 * 1.96))]


def write(
    folder: str | Path, change: pd.DataFrame, points: pd.DataFrame, fit: LawFit | None = None, no_law: str = "",
    differences: pd.DataFrame | None = None,
) -> str:  # fmt: skip
    """Write analysis/summary.txt of a study, and law.json where a law was fitted; return the summary. `no_law` says why
    one that was asked for could not be fitted; `differences` are those of `rlkit.measures.comparisons`."""
    folder, held = Path(folder), "held out" if fit is None else "held out of the fit"
    (folder / "analysis" / "law.json").unlink(missing_ok=True)
    runs = change.groupby("cell")["runs"].max().sum()
    words = "pass@1, before → after (95 % intervals)"
    lines = [f"Study {folder.name}: {runs} runs trained", "", f"held-out {words}", *_cells(change, held)]
    if caution := unequal_steps(change):
        lines.append(f"  {caution}")
    if count := change["ungraded"].sum():
        lines.append(f"  {count} samples could not be graded and are left out")
    if cells := change.attrs.get("ungraded"):
        lines.append(f"  left out, without a graded sample before or after training: {', '.join(cells)}")
    lines += [*filter(None, [equal_cells_sentence(points)]), ""]
    for name, suite in suite_changes(folder).items():  # which are in no number of the held-out tasks
        lines += [f"suite {name}, {suite['tasks'].max():,} problems: {words}", *_cells(suite, held), ""]
    if differences is not None:
        lines += [*_differences(differences), ""]
    if fit is None:
        asked = f"none was asked for; rlkit figures {folder} --law power draws one over the model sizes"
        lines.append(f"no law: {no_law or asked}")
    else:
        missed = held_out_error(fit, points)
        record = {"fit": json.loads(fit.to_json()), "held_out": plain(missed.to_dict("records"))}
        write_text(folder / "analysis" / "law.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
        lines += [fit.summary(), ""]
        for row in missed.to_dict("records"):
            predicted = f"{row['prediction']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            seen = f"observed {row['observed']:.3f}, error {row['error']:+.3f}"
            lines.append(f"held out {row['cell']}: predicted {predicted}, {seen}")
        lines += [f"! {sentence}" for sentence in outside(missed.to_dict("records"))]
    lines += ["", *(f"{name:<10} {folder}/{name}" for name in ("runs", "notebooks", "figures", "analysis"))]
    text = "\n".join(lines) + "\n"
    write_text(folder / "analysis" / "summary.txt", text)
    return text


def _cells(change: pd.DataFrame, held: str) -> Iterator[str]:
    """A line a cell: pass@1 at both ends."""
    width = max(map(len, change["cell"]))
    for cell, part in change.groupby("cell", sort=False):
        shown = [f"{r['pass@1']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for _, r in part.iterrows()]
        mark = f"  ({held})" if part["held_out"].iloc[0] else ""
        yield f"  {cell:<{width}}  {shown[0]} → {shown[1]}{mark}"


def _differences(table: pd.DataFrame) -> Iterator[str]:
    width = max(map(len, table["cell"]))
    for baseline, rows in table.groupby("baseline", sort=False):
        yield f"final pass@1 less that of {baseline}, paired by problem"
        yield "(95 % intervals: over problems; over seeds and problems)"
        for _, row in rows.iterrows():
            over = [f"[{row[f'low{of}']:+.3f}, {row[f'high{of}']:+.3f}]" for of in ("", "_seeds")]
            known = min(row["seeds"], row["baseline_seeds"]) > 1
            seeds = over[1] if known else "none over seeds, of which a cell has one"
            yield f"  {row['cell']:<{width}}  {row['difference']:+.3f} {over[0]}; {seeds}"
        yield from (f"  {sentence}" for sentence in seeds_to_show(rows))
