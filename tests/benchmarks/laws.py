"""How fast laws are fitted, beside scipy on the same machine in the same run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/laws.py [--fits 200] [--rows 10000]

Peers fit the Chinchilla form with an analytic gradient, one scipy call a fit, as analysis notebooks do; a
sample of their calls is timed and scaled to the whole job. Times are CPU seconds. The last line is JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import rlkit

sys.path.insert(0, str(Path(__file__).parents[1]))
from laws_data import TRUTHS, planted, scattered

DELTA = 1e-3


def objective(t: np.ndarray, ln_n: np.ndarray, ln_d: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Huber's loss of the Chinchilla form in ln L and its gradient, at (ln A, ln B, ln E, alpha, beta)."""
    n, d, e = np.exp(t[0] - t[3] * ln_n), np.exp(t[1] - t[4] * ln_d), np.exp(t[2])
    r = np.log(n + d + e) - y
    c = np.clip(r, -DELTA, DELTA)
    value, c = float((c * (r - 0.5 * c)).sum()), c / (n + d + e)
    return value, np.array([(c * n).sum(), (c * d).sum(), c.sum() * e, -(c * n * ln_n).sum(), -(c * d * ln_d).sum()])


def cpu(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The least CPU seconds of some repeats, and the last result."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def logs(df: pd.DataFrame) -> list[np.ndarray]:
    return [np.log(df[c].to_numpy()) for c in ("N", "D", "loss")]


def grid_search(df: pd.DataFrame, sample: int) -> dict[str, float]:
    """4,500 starts of L-BFGS-B (Hoffmann et al.'s grid) against one call of rlkit.fit."""
    axes = [
        np.arange(0, 30, 5),
        np.arange(0, 30, 5),
        np.arange(-1, 1.5, 0.5),
        np.arange(0, 2.5, 0.5),
        np.arange(0, 2.5, 0.5),
    ]
    grid = np.array(list(product(*axes)), dtype=float)
    chosen = grid[np.random.default_rng(0).permutation(len(grid))[:sample]]
    args = tuple(logs(df))
    peer, found = cpu(lambda: min(minimize(objective, t, args, "L-BFGS-B", jac=True).fun for t in chosen))
    ours, fit = cpu(lambda: rlkit.fit(df, "chinchilla", y="loss", delta=DELTA), 5)
    whole = peer / sample * len(grid)
    return {"starts": len(grid), "peer_s": whole, "rlkit_s": ours, "ratio": whole / ours,
            "peer_objective": float(found), "rlkit_objective": fit.objective}  # fmt: skip


def bootstrap(df: pd.DataFrame, sample: int, draws: int = 4000) -> dict[str, float]:
    """4,000 resamples: BFGS once from the published values, against rlkit with restarts."""
    rng, args = np.random.default_rng(1), logs(df)
    start = np.array([6.0073404, 6.0179186, 0.5267228, 0.33917084, 0.2849083])

    def peer() -> np.ndarray:
        rows = [rng.integers(len(df), size=len(df)) for _ in range(sample)]
        return np.array([minimize(objective, start, tuple(a[i] for a in args), "BFGS", jac=True).x for i in rows])

    peer_s, found = cpu(peer)
    ours_s, fit = cpu(lambda: rlkit.fit(df, "chinchilla", y="loss", delta=DELTA, bootstrap=draws), 3)
    whole = peer_s / sample * draws
    out = {"draws": draws, "peer_s": whole, "rlkit_s": ours_s, "ratio": whole / ours_s}
    return out | {"peer_se_beta": float(found[:, 4].std()), "rlkit_se_beta": fit.stderr["beta"]}


def all_forms(rows: int, draws: int = 1000) -> dict[str, float]:
    """Every law on a study of this many rows with 1,000 resamples."""
    seconds = {}
    for law in TRUTHS:
        df = planted(law, rows, noise=0.02)
        seconds[law], fit = cpu(lambda df=df, law=law: rlkit.fit(df, law, y="y", bootstrap=draws))
        shown = ", ".join(f"{k}={v:.4g}" for k, v in fit.params.items())
        print(f"  {law:22} {seconds[law]:7.2f} s  {shown}", flush=True)
    return {**seconds, "total_s": sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200, help="peer fits that are timed")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the study that all laws are fitted to")
    chosen = parser.parse_args()
    df = scattered()
    print("job                          scipy (CPU s)   rlkit (CPU s)   ratio")
    results = {"grid": grid_search(df, chosen.fits), "bootstrap": bootstrap(df, chosen.fits)}
    for name, r in results.items():
        print(f"{name:28} {r['peer_s']:13.2f} {r['rlkit_s']:15.3f} {r['ratio']:7.0f}x")
    print(f"every law on {chosen.rows} rows, 1000 resamples each")
    results["all_forms"] = all_forms(chosen.rows)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
