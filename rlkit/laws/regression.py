"""Power laws as regressions in logarithms, where statsmodels already has the estimator."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.rules import column
from rlkit.laws.table import numbers

Method = Literal["ols", "robust", "quantile", "mixed"]


def regress(
    df: pd.DataFrame,
    *,
    y: str,
    x: str | list[str],
    method: Method = "ols",
    seeds: str | None = None,
    cluster: str | None = None,
    quantile: float = 0.5,
) -> Any:
    """ln y on ln x: y = A·x1^b1·x2^b2…, with statsmodels' own result object (summary, conf_int, predict).

    Args:
        method: ols, robust (Huber's M-estimator), quantile, or mixed: a random intercept for each value of
            `seeds` (runs), so that the exponent's error includes run-to-run variance.
        cluster: for ols, the column for cluster-robust standard errors.

    Returns:
        The fitted statsmodels results; the constant is ln A.

    Raises:
        UserError: values without a logarithm, mixed without `seeds`, an unknown method.
    """
    import statsmodels.api as sm

    names = [x] if isinstance(x, str) else list(x)
    data = {name: numbers(df, name, "y" if name == y else "x") for name in [y, *names]}
    for name, values in data.items():
        if np.any(values <= 0):
            bad = df.index[values <= 0][:5]
            raise UserError(
                f"Column {name!r} is zero or negative, which has no logarithm, in rows {list(bad)}: "
                "drop them."
            )
    design = sm.add_constant(pd.DataFrame({f"ln {n}": np.log(data[n]) for n in names}, index=df.index))
    target = pd.Series(np.log(data[y]), index=df.index, name=f"ln {y}")
    if method == "mixed":
        if seeds is None:
            raise UserError("method='mixed' needs seeds=, the column that names the runs.")
        return sm.MixedLM(target, design, groups=column(df, seeds, "seeds")).fit(reml=True)
    if method == "ols":
        model = sm.OLS(target, design)
        if cluster is None:
            return model.fit()
        return model.fit(
            cov_type="cluster", cov_kwds={"groups": pd.factorize(column(df, cluster, "cluster"))[0]}
        )
    if method == "robust":
        return sm.RLM(target, design, M=sm.robust.norms.HuberT()).fit()
    if method == "quantile":
        return sm.QuantReg(target, design).fit(q=quantile)
    raise UserError(f"method is {method!r}: use ols, robust, quantile or mixed.")
