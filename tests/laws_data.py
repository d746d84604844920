"""Data with planted truths for the tests of rlkit.laws."""

import numpy as np
import pandas as pd
from cases import records

from rlkit.laws import laws
from rlkit.laws.solver import to_space

TRUTHS = {case["law"]: case["params"] for case in records("laws_truths")}
CHINCHILLA = TRUTHS["chinchilla"]
RANGES = {"N": (5e7, 2e10), "D": (1e9, 3e11), "X": (1e3, 1e6), "x": (1e2, 1e7), "C": (1e2, 3e4)}
RANGES |= {"k": (1.0, 1e4), "s": (0.05, 0.95)}
# Four sizes whose curves reach 10, 8, 2.5 and 1 times C_mid (R0, A, C_mid, B, C_max).
CURVES = {
    "well": (0.08, 0.42, 600.0, 1.3, 6000.0),
    "good": (0.17, 0.53, 1200.0, 1.6, 9600.0),
    "weak": (0.25, 0.60, 2500.0, 1.75, 6250.0),
    "hardly": (0.34, 0.68, 5200.0, 1.9, 5200.0),
}


def planted(law: str, rows: int = 300, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Rows of a law at its planted parameters, with normal noise in its residual space."""
    rng, form = np.random.default_rng(seed), laws[law]
    columns = {c: np.exp(rng.uniform(*np.log(RANGES[c]), size=rows)) for c in form.columns if c in RANGES}
    if "U" in form.columns:
        columns["U"] = columns["D"] / rng.choice([1, 2, 4, 10, 30], rows)
    values = np.array([[TRUTHS[law][p] for p in form.parameters]])
    truth = to_space(form(columns, values), form.returns, form.space)[0][0]
    y = to_space(truth + rng.normal(0, noise, rows), form.space, "linear")[0]
    return pd.DataFrame({**columns, "y": y})


def scattered(seed: int = 0, n: int = 240) -> pd.DataFrame:
    """Points like those read off a published figure: noise of 0.008 in ln L and 5 % one-sided outliers."""
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log([5e7, 3e8]), np.log([1.6e10, 3e11]), (n, 2))).T
    noise = rng.normal(0, 0.008, n) + np.where(rng.random(n) < 0.05, rng.uniform(0.05, 0.4, n), 0)
    t = CHINCHILLA
    loss = (t["E"] + t["A"] * N ** -t["alpha"] + t["B"] * D ** -t["beta"]) * np.exp(noise)
    return pd.DataFrame({"N": N, "D": D, "loss": loss})


def curve(name: str, seed: int, runs: int = 1, rho: float = 0.0, offset: float = 0.0) -> pd.DataFrame:
    """Learning curves of 40 evaluations on 16,000 samples each; `rho` correlates them, `offset` shifts a
    run."""
    rng = np.random.default_rng(seed)
    R0, A, middle, B, end = CURVES[name]
    C = np.linspace(end / 40, end, 40)
    rate = R0 + (A - R0) / (1 + (middle / C) ** B)
    parts = []
    for run in range(runs):
        e = rng.standard_normal(40)
        for i in range(1, 40):
            e[i] = rho * e[i - 1] + np.sqrt(1 - rho * rho) * e[i]
        seen = rate + e * np.sqrt(rate * (1 - rate) / 16_000) + rng.normal(0, 1) * offset
        parts.append(pd.DataFrame({"C": C, "rate": seen, "run": run, "n": 16_000}))
    return pd.concat(parts, ignore_index=True)


def answers(right: np.ndarray, **facts) -> pd.DataFrame:
    """Rows of one evaluation of a run, as `rlkit.read_evals` gives them: right (problems, samples), and its facts."""
    task = np.arange(len(right)).repeat(right.shape[1])
    return pd.DataFrame({**facts, "task_id": task, "correct": right.ravel()})
