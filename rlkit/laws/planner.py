"""Planning: the best use of a budget under a law, what a design can show, and which runs to add.

Costs are floating-point operations; training costs 6·N·D unless another rule is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.fitting import LawFit
from rlkit.laws.law import Law, resolve
from rlkit.laws.losses import Loss, make_loss
from rlkit.laws.optimum import scaled_curvature
from rlkit.laws.solver import Problem, minimise, to_space
from rlkit.laws.starts import starts
from rlkit.seeds import generator


@dataclass(frozen=True)
class Price:
    """What a FLOP costs: a device's peak, the share of it that training reaches, and its hourly price."""

    flops_per_second: float = 989e12  # one H100, dense bf16
    utilization: float = 0.35
    per_hour: float | None = None
    currency: str = "USD"

    def __post_init__(self) -> None:
        if not (self.flops_per_second > 0 and 0 < self.utilization <= 1):
            raise UserError(
                f"flops_per_second is {self.flops_per_second:g} and utilization {self.utilization:g}: "
                "the first must be "
                "positive and the second between 0 and 1."
            )

    def gpu_hours(self, flops: float | np.ndarray) -> float | np.ndarray:
        return flops / (self.flops_per_second * self.utilization * 3600)

    def columns(self, flops: np.ndarray) -> dict[str, np.ndarray]:
        """flops, gpu_hours and, where there is a price, money (named after the currency)."""
        hours = np.asarray(self.gpu_hours(flops))
        money = {} if self.per_hour is None else {self.currency: hours * self.per_hour}
        return {"flops": np.asarray(flops), "gpu_hours": hours, **money}


@dataclass(frozen=True)
class Known:
    """A law with known parameters: what a plan assumes. `draws` (B, p) carries a fit's uncertainty along."""

    law: Law
    values: np.ndarray
    draws: np.ndarray | None = None

    @classmethod
    def of(cls, law: str | Law | LawFit, params: Mapping[str, float] | None = None) -> Known:
        """From a fit, or from a law and its parameters.

        Raises:
            UserError: parameters missing or unknown.
        """
        if isinstance(law, LawFit):
            return cls(law.law, np.array(list(law.params.values())), law.draws)
        form = resolve(law)
        given = dict(params or {})
        form._known(given)
        missing = [p for p in form.parameters if p not in given and p not in form.pinned]
        if missing:
            raise UserError(
                f"params lacks {', '.join(missing)}: the law {form.name!r} needs "
                f"{', '.join(form.parameters)}."
            )
        return cls(form, np.array([float(given.get(p, form.pinned.get(p, np.nan))) for p in form.parameters]))

    def at(self, columns: Mapping[str, np.ndarray], values: np.ndarray) -> np.ndarray:
        """y (B, n) in natural units at parameters (B, p)."""
        return to_space(self.law(columns, values), self.law.returns, "linear")[0]


def allocate(
    law: str | Law | LawFit,
    budget: float | Sequence[float],
    *,
    params: Mapping[str, float] | None = None,
    flops_per_cell: float = 6.0,
    maximise: bool = False,
    tokens_per_step: float | None = None,
    price: Price | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compute-optimal size and data for each budget: the best y on N·D·flops_per_cell = budget.

    Args:
        law: a LawFit (its draws give the intervals), or a law with `params`. It must have the columns N and
            one of D, X or E; a third column U takes the value of the data (no repeats).
        budget: FLOPs. flops_per_cell: FLOPs a parameter and token.
        tokens_per_step: adds a column of steps.

    Returns:
        One row a budget: budget, N, the data column, their ratio, y; N_low, N_high, y_low, y_high where there
        are draws; steps; flops, gpu_hours, money. `at_edge` is true where the optimum lies outside the nine
        decades searched.

    Raises:
        UserError: a law without N and data, a budget that is not positive.
    """
    known = Known.of(law, params)
    data = next((c for c in ("D", "X", "E") if c in known.law.columns), None)
    if data is None or "N" not in known.law.columns:
        raise UserError(
            f"allocate needs a law of N and D (or X, E), and {known.law.name!r} has "
            f"{', '.join(known.law.columns)}."
        )
    price, rows = price or Price(), []
    for C in np.atleast_1d(np.asarray(budget, dtype=float)):
        if not C > 0:
            raise UserError(f"budget is {C:g}: give FLOPs above 0.")
        row, edge = _best(known, known.values[None], C / flops_per_cell, data, maximise)
        out = {
            "budget": C,
            "N": row[0, 0],
            data: row[0, 1],
            f"{data}/N": row[0, 1] / row[0, 0],
            "y": row[0, 2],
        }
        if known.draws is not None:
            spread, _ = _best(known, known.draws, C / flops_per_cell, data, maximise)
            low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
            out |= {"N_low": low[0], "N_high": high[0], "y_low": low[2], "y_high": high[2]}
        if tokens_per_step:
            out["steps"] = row[0, 1] / tokens_per_step
        rows.append(out | {"at_edge": edge} | {k: float(v) for k, v in price.columns(np.array(C)).items()})
    return pd.DataFrame(rows)


def _best(
    known: Known, values: np.ndarray, cells: float, data: str, maximise: bool
) -> tuple[np.ndarray, bool]:
    """(B, 3) best N, data and y with N·data = cells: a grid in ln N, then two zooms around its best point."""
    middle, width = np.full(len(values), np.log(cells) / 2), np.log(10) * 4.5
    edge = False
    for zoom in range(4):
        ln_n = middle[:, None] + np.linspace(-width, width, 201)
        y = np.empty_like(ln_n)
        for i in range(len(values)):
            N = np.exp(ln_n[i])
            columns = {"N": N, data: cells / N, "U": cells / N}
            y[i] = known.at({c: columns[c] for c in known.law.columns}, values[i : i + 1])[0]
        k = np.nanargmax(y if maximise else -y, axis=1)
        edge = edge or (zoom == 0 and bool(k[0] in (0, 200)))
        rows = np.arange(len(values))
        middle, width = ln_n[rows, k], width / 50
    N = np.exp(middle)
    return np.column_stack([N, cells / N, y[rows, k]]), edge


@dataclass(frozen=True)
class Design:
    """What a study would show.

    Attributes:
        intervals: one row a parameter: truth, low, high (of the estimates over simulated studies), width, and
            `unidentified`, the share of studies whose estimate left a factor of ten around the truth or ended
            at a bound; 1, with an infinite width, where the design cannot tell the parameter from others at
            all.
        additions: one row a candidate run: its columns, flops, the factor by which it multiplies each
            parameter's width (0 where an infinite one becomes finite), and gain_per_flop, the mean fall in ln width
            a FLOP relative to the largest finite one. Infinite gains come first, the cheapest of them at the top.
        cost: flops, gpu_hours and money of the design.
    """

    intervals: pd.DataFrame
    additions: pd.DataFrame
    cost: dict[str, float]
    replicates: int


def design(
    law: str | Law | LawFit,
    runs: pd.DataFrame,
    *,
    params: Mapping[str, float] | None = None,
    noise: float,
    run_noise: float = 0.0,
    candidates: pd.DataFrame | None = None,
    flops: str | Callable[[pd.DataFrame], np.ndarray] = "6ND",
    price: Price | None = None,
    loss: str | Loss = "ls",
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Design:
    """Simulate a study before it is run: the expected interval of each parameter, and the best runs to add.

    Args:
        law, params: the truth assumed; a LawFit brings its own parameters.
        runs: one row a measurement under the law's column names; a column `run` names rows that share an
            offset.
        noise, run_noise: standard deviation of one measurement and of a run's offset, in residual space.
        candidates: rows that could be added, one at a time.
        flops: "6ND", the name of a column, or a function of the rows. A row is charged for itself, so give
            the rows that a run passes through a cost of 0 but the last.
        replicates: simulated studies.

    Raises:
        UserError: columns missing, noise not positive, fewer rows than parameters.
    """
    known = Known.of(law, params)
    if not noise > 0 or run_noise < 0:
        raise UserError(
            f"noise is {noise!r} and run_noise {run_noise!r}: noise must be above 0, run_noise at least 0."
        )
    if len(runs) <= len(known.law.free):
        raise UserError(
            f"{len(runs)} rows cannot determine the {len(known.law.free)} parameters of {known.law.name!r}."
        )
    sigma = (noise, run_noise)
    price, spent = price or Price(), _flops(runs, flops)

    def widths(rows: pd.DataFrame) -> pd.DataFrame:
        estimates = _simulate(known, rows, sigma, make_loss(loss, None), replicates, seed)
        return _spread(known, estimates, _blind(known, rows), level)

    base = widths(runs)
    additions = _additions(known, runs, candidates, widths, base["width"].to_numpy(), flops)
    cost = {k: float(v) for k, v in price.columns(np.array(spent.sum())).items()}
    return Design(base, additions, cost, replicates)


def _additions(
    known: Known,
    runs: pd.DataFrame,
    candidates: pd.DataFrame | None,
    widths: Callable[[pd.DataFrame], pd.DataFrame],
    base: np.ndarray,
    flops: str | Callable[[pd.DataFrame], np.ndarray],
) -> pd.DataFrame:
    """The candidates by how much each, added alone, narrows the intervals a FLOP."""
    rows = []
    for i in range(0 if candidates is None else len(candidates)):
        extra = candidates.iloc[[i]]  # type: ignore[union-attr]
        if "run" in runs.columns:  # a new run, whatever it is called, has an offset of its own
            extra = extra.assign(run=f"candidate {i}")
        more = widths(pd.concat([runs, extra], ignore_index=True))["width"].to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = more / base  # 0 where it was infinite
            ratio[np.isnan(ratio)] = 1.0  # infinite both times: no change
            fall = -np.log(ratio).mean()
        cost, extra = float(_flops(extra, flops)[0]), candidates.iloc[[i]]  # type: ignore[union-attr]
        shrink = dict(zip((f"{p} width" for p in known.law.free), ratio, strict=True))
        rows.append({**extra.iloc[0].to_dict(), "flops": cost, **shrink, "gain_per_flop": fall / cost})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    table["gain_per_flop"] /= table["gain_per_flop"].abs().replace(np.inf, 0.0).max() or 1.0
    return table.sort_values(["gain_per_flop", "flops"], ascending=[False, True], ignore_index=True)


def _flops(rows: pd.DataFrame, rule: str | Callable[[pd.DataFrame], np.ndarray]) -> np.ndarray:
    if callable(rule):
        return np.asarray(rule(rows), dtype=float)
    if rule in rows.columns:
        return rows[rule].to_numpy(dtype=float)
    if rule == "6ND" and {"N", "D"} <= set(rows.columns):
        return 6.0 * rows["N"].to_numpy(dtype=float) * rows["D"].to_numpy(dtype=float)
    raise UserError(
        f"flops is {rule!r}: there are no columns N and D for '6ND', and no column of that name. Name one."
    )


def _simulate(
    known: Known, runs: pd.DataFrame, sigma: tuple[float, float], loss: Loss, replicates: int, seed: int
) -> np.ndarray:
    """(replicates, p) estimates in z from simulated studies; the same seed gives shared rows the same
    noise."""
    from rlkit.laws.table import numbers

    law = known.law
    columns = {c: numbers(runs, c, f"design column {c!r}") for c in law.columns}
    problem = Problem(law, columns, law.space)
    z = law.to_z(known.values[None])
    truth = problem.predict(z)[0]
    rng = generator("laws", "design", seed)
    noise = rng.standard_normal((len(runs), replicates)).T * sigma[0]
    if sigma[1]:
        codes = (
            runs.groupby("run", sort=False, dropna=False).ngroup().to_numpy()
            if "run" in runs.columns
            else np.arange(len(runs))
        )
        offsets = generator("laws", "design-runs", seed).standard_normal((codes.max() + 1, replicates)).T
        noise = noise + offsets[:, codes] * sigma[1]
    y, ones = truth + noise, np.ones(len(runs))
    spread = float(np.std(truth)) or 1.0
    found = minimise(problem, np.repeat(z, replicates, axis=0), y, ones, loss.refit(spread), 1e-9)
    for other in starts(problem, truth, ones, loss)[:2]:
        again = minimise(
            problem, np.repeat(other[None], replicates, axis=0), y, ones, loss.path(spread), 1e-9
        )
        better = again.objective < found.objective
        found.z[better], found.objective[better] = again.z[better], again.objective[better]
    return found.z[np.isfinite(found.objective)]


def _blind(known: Known, runs: pd.DataFrame) -> np.ndarray:
    """(p,) bool: parameters in a direction along which no row of the design changes."""
    law = known.law
    columns = {c: runs[c].to_numpy(dtype=float) for c in law.columns}
    z, free = law.to_z(known.values[None]), np.array([p not in law.pinned for p in law.parameters])
    problem = Problem(law, columns, law.space)
    H = scaled_curvature(problem, z[0], Loss("ls"), problem.predict(z)[0], np.ones(len(runs)), free)
    values, vectors = np.linalg.eigh(H)
    blind = np.zeros(len(free), dtype=bool)
    blind[free] = (np.abs(vectors[:, values < 1e-9 * values[-1]]) > 1e-3).any(axis=1)
    return blind


def _spread(known: Known, z: np.ndarray, blind: np.ndarray, level: float) -> pd.DataFrame:
    values = known.law.from_z(z)[0]
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    rows = []
    for j, name in enumerate(known.law.parameters):
        if name in known.law.pinned:
            continue
        bounds, truth = known.law.limits(name), known.values[j]
        low, high = bounds if blind[j] else ends[:, j]
        share = values[:, j] / truth if truth else np.ones(len(values))
        at_bound = np.isfinite(bounds).any() & (
            np.minimum(values[:, j] - bounds[0], bounds[1] - values[:, j]) < 1e-9
        )
        lost = 1.0 if blind[j] else float(np.mean((share < 0.1) | (share > 10) | at_bound))
        width = np.inf if blind[j] else high - low
        rows.append(
            {
                "parameter": name,
                "truth": truth,
                "low": low,
                "high": high,
                "width": width,
                "unidentified": lost,
            }
        )
    return pd.DataFrame(rows)
