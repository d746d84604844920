"""The laws of a study, each fitted in one place: its notebook prints them, and `rlkit figures` draws the same.

`df` and `evals` are of `rlkit.read` and `rlkit.read_evals`. A function returns a law with the points to draw beside it,
or several by name, and raises UserError where the study has too little for its law."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import LawFit, fit, fit_coverage, fit_pass_rates
from rlkit.measures.summary import final, held_out_error
from rlkit.measures.tables import curve_table, graded_ends, in_order, remember
from rlkit.results.labels import domain_name

SIZE, UNIQUE, SHARE = "parameters_non_embedding", "data.train_max_samples", "data.sft_ratio"
COMPUTE, PASSED, BATCH = "compute/total_flops", "eval/pass@1", "data.train_batch_size"
FOR_TRAINING_LAW = 5  # evaluations after the start, for the four parameters of a sigmoid
FOR_LAW = 3  # values of its column that a law of one needs at least
Fitted = tuple[LawFit, pd.DataFrame]


def check_varied(df: pd.DataFrame, column: str, values: int = 2) -> None:
    """A UserError where a study has fewer values of a column."""
    found = df[column].nunique() if column in df else 0
    if found < values:
        raise UserError(f"This needs {values} values of {column}, and the study has {found}.")


def _errors(df: pd.DataFrame, by: str = "cell") -> pd.DataFrame:
    """The held-out error at each evaluation after the start, with what laws need to know of its run."""
    curves = curve_table(df, "step", PASSED, by)
    facts = df.drop_duplicates("run")[["run", SIZE, "held_out", UNIQUE, BATCH]]
    curves = curves[curves["step"] > 0].merge(facts, on="run").assign(error=lambda t: 1 - t[PASSED])
    return remember(curves, df, by)


def _models(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each model by its name, smallest first; of one model by ""."""
    paths = [path for path in in_order(table)["model.path"] if (table["model.path"] == path).any()]
    return {Path(str(p)).name * (len(paths) > 1): table[table["model.path"] == p] for p in paths}


def _those_that_fit(fit_one: Callable[[pd.DataFrame], Any], parts: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """What `fit_one` makes of each part, with a warning where it makes none; a UserError where it makes none of any."""
    found, problems = {}, []
    for name, part in parts.items():
        try:
            found[name] = fit_one(part)
        except UserError as error:
            problems.append(f"{name}: {error}".removeprefix(": "))
    if not found:
        raise UserError(" ".join(problems[:1]) or "No cell has a graded sample.")
    for problem in problems:
        warnings.warn(f"left out of the laws: {problem}", stacklevel=2)
    return found


def size_and_steps(df: pd.DataFrame) -> Fitted:
    """Error along training, of all sizes."""
    check_varied(df, SIZE, FOR_LAW)
    curves = _errors(df)
    if curves["step"].nunique() < FOR_LAW:
        raise UserError(f"The study was evaluated at fewer than {FOR_LAW} steps after the start.")
    options: Any = {"y": "error", "loss": "ls", "cluster": "run", "bootstrap": 200}
    return fit(curves, "tan", x={"N": SIZE, "X": "step"}, **options), curves


def unique_tasks(df: pd.DataFrame, evals: pd.DataFrame) -> dict[str, Fitted]:
    """Error at the end: of three sizes or more in size and unique training tasks, else of each model in its tasks."""
    check_varied(df, UNIQUE, FOR_LAW)
    law, x, parts = "power", UNIQUE, _models(evals)
    if len(parts) >= FOR_LAW:
        law, x, parts = "chinchilla", {"N": SIZE, "D": UNIQUE}, {"": evals}
    points, options = final(df), {"x": x, "y": "error"}
    found = _those_that_fit(lambda part: fit_pass_rates(part, law, **options), parts)
    return {name: (one, points[points["run"].isin(parts[name]["run"])]) for name, one in found.items()}


def repeats(df: pd.DataFrame) -> dict[str, Fitted]:
    """Error along training in tasks shown and unique ones: of three sizes or more at once, else of each model."""
    check_varied(df, UNIQUE)
    curves = _errors(df, "model.path")
    shown = curves["step"] * curves[BATCH]
    curves = curves.assign(**{"tasks shown": shown, "unique tasks": curves[UNIQUE].clip(upper=shown)})
    law, x, parts = "repeated_data", {"D": "tasks shown", "U": "unique tasks"}, _models(curves)
    if len(parts) >= FOR_LAW:
        law, x, parts = "data_constrained", x | {"N": SIZE}, {"": curves}
    options: Any = {"x": x, "y": "error", "cluster": "run", "bootstrap": 200}
    return _those_that_fit(lambda part: (fit(part, law, **options), part), parts)


def best_share(df: pd.DataFrame, evals: pd.DataFrame) -> Fitted:
    """Error at the end in the share of tasks with worked answers, with intervals over seeds and problems."""
    check_varied(df, SHARE, FOR_LAW)
    return fit_pass_rates(evals, "best_share", x=SHARE, y="error"), final(df)


def by_cell(df: pd.DataFrame, evals: pd.DataFrame) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """Error along training of each cell, with intervals over seeds and problems that are drawn for all at once."""
    check_varied(df, "cell")
    options: Any = {"x": "step", "y": "error", "along": True}
    seen = evals[~evals["held_out"].astype(bool)]
    parts = {str(cell): own for cell, own in seen.groupby("cell")}
    alone = _those_that_fit(lambda own: fit_pass_rates(own, "power", bootstrap=0, **options), parts)
    rest = evals[~evals["cell"].isin(parts.keys() - alone.keys())]
    group = "cell" if rest["cell"].nunique() > 1 else None
    found = fit_pass_rates(rest, "power", group=group, **options)
    return found if group else dict.fromkeys(alone, found), _errors(df)


def by_domain(
    df: pd.DataFrame, evals: pd.DataFrame
) -> dict[str, tuple[dict[str, dict[str, LawFit]], pd.DataFrame]]:
    """Error of each domain along training, by model: laws by domain and cell, and the rates of the first cell."""
    check_varied(evals, "data_source")
    fitted = evals[~evals["held_out"].astype(bool)].assign(domain=lambda t: t["data_source"].map(domain_name))
    rates = df[(df["metric"] == PASSED) & (df["data_source"] != "all") & (df["step"] > 0)]
    rates = rates.assign(error=1 - rates["value"], domain=rates["data_source"].map(domain_name))
    found = {}
    for name, part in _models(fitted).items():
        cells = in_order(part, "cell")["cell"].tolist()
        options: Any = {"x": "step", "y": "error", "along": True, "group": "cell" if len(cells) > 1 else None}
        domains = {str(domain): own for domain, own in part.groupby("domain")}
        fits = _those_that_fit(lambda own, o=options: fit_pass_rates(own, "power", **o), domains)
        fits = fits if len(cells) > 1 else {domain: {cells[0]: one} for domain, one in fits.items()}
        found[name] = fits, rates[rates["cell"] == cells[0]]
    return found


def coverage(evals: pd.DataFrame) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """pass@k of each cell after training; the samples of all its seeds count together."""
    last = graded_ends(evals)["after"].groupby(["cell", "task_id"], observed=True)["correct"]
    counts = last.agg(n="count", c="sum").astype(int).reset_index("cell")
    cells = [cell for cell in in_order(evals, "cell")["cell"] if cell in set(counts["cell"])]
    found = _those_that_fit(fit_coverage, {str(cell): counts[counts["cell"] == cell] for cell in cells})
    curves = [
        pd.DataFrame({"cell": c, "k": one.table.columns["k"], "pass@k": one.table.y})
        for c, one in found.items()
    ]
    return found, remember(pd.concat(curves, ignore_index=True), evals, "cell")


def environment_steps(df: pd.DataFrame, evals: pd.DataFrame) -> LawFit:
    """Success in an environment in the steps taken there, with intervals over held-out problems."""
    name = "training/environment_steps"
    taken = df[(df["metric"] == name) & (df["value"] > 0)].set_index(["run", "step"])["value"]
    if taken.empty:
        raise UserError("No run of the study trained in an environment.")
    seen = evals.join(taken.rename("environment steps"), on=["run", "step"]).dropna(
        subset="environment steps"
    )
    return fit_pass_rates(seen, "logit_linear", x="environment steps", along=True)


def along(
    df: pd.DataFrame, law: str = "sigmoid", compute: str = COMPUTE, after: int | None = None
) -> tuple[dict[str, LawFit], pd.DataFrame]:
    """pass@1 after the start against compute, for each cell that is not held out, and its evaluations: those later than
    the step `after` are held out. Runs are resampled whole; the noise of a cell of one run is correlated in time."""
    seen = df[~df["held_out"].astype(bool)]
    curves = curve_table(seen, compute, PASSED, "cell").query("step > 0")
    curves = curves.assign(held_out=curves["step"] > (after or np.inf))
    if (found := curves[~curves["held_out"]].groupby("run").size().min()) < FOR_TRAINING_LAW:
        told = f"{FOR_TRAINING_LAW} evaluations after the start, and a run has {found}"
        raise UserError(f"This needs {told}: set a lower trainer.test_freq.")
    made, parts = {}, dict(list(curves.groupby("cell")))
    for cell in (cell for cell in in_order(seen, "cell")["cell"] if cell in parts):
        several = parts[cell]["run"].nunique() > 1  # of one design, of which no resample loses anything
        together: Any = {"cluster": "run", "resample": "case"} if several else {"block": "step"}
        made[cell] = fit(parts[cell], law, x=compute, y=PASSED, bootstrap=500, **together)
    return made, remember(curves, seen, "cell")


def foretold(found: dict[str, LawFit], curves: pd.DataFrame) -> pd.DataFrame:
    """What the laws of `along` foretell of each cell's last evaluation, beside what was observed, as
    `rlkit.measures.summary.held_out_error` has it; empty where the study holds no evaluation out."""
    held = curves[curves["held_out"]]
    last = held[held["step"] == held.groupby("run")["step"].transform("max")]
    parts = [held_out_error(found[str(cell)], part) for cell, part in last.groupby("cell")]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.assign(**{end: table[end].clip(0, 1) for end in ("low", "high") if end in table})
