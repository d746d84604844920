"""Rows of runs as `rlkit.read` gives them, whose curves a test chooses."""

from collections.abc import Iterable, Mapping

import pandas as pd

STEPS = (0, 10, 20, 30)
SIZES = {"small": 1e4, "large": 1e5}


def metrics(
    curves: Mapping[tuple[str, int], Iterable[float]], steps: Iterable[int] = STEPS, sizes: Mapping[str, float] = SIZES
) -> pd.DataFrame:
    """Rows of runs (cell, seed) with pass@1 at these steps; the size of a cell without one is 10 000."""
    rows = []
    for (cell, seed), curve in curves.items():
        size = sizes.get(cell, 1e4)
        facts = {"run": f"{cell}-{seed}", "cell": cell, "seed": seed, "parameters_non_embedding": size}
        facts |= {"model.path": f"ladder-{cell}", "data.train_max_samples": size / 100}
        for step, value in zip(steps, curve, strict=True):
            for metric, source, number in (
                ("eval/pass@1", "all", value),
                ("eval/pass@1", "math__arithmetic", value),
                ("tokens/response", "all", 100.0 * step),
                ("compute/total_flops", "all", step * size),
                ("data/tasks/arithmetic", "all", 2.0 * step),
                ("actor/entropy", "all", 2.0 - step / 30),
                ("actor/grad_norm", "all", 10.0 if step == 30 and seed else 1.0),
            ):
                rows.append({**facts, "step": step, "data_source": source, "metric": metric, "value": number})
    return pd.DataFrame(rows)
