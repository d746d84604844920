"""What training on one domain is worth to another: the transfer matrix of a mixture study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rlkit.errors import UserError
from rlkit.laws.fitting import fit


def transfer_matrix(
    df: pd.DataFrame, *, y: str, domain: str, data: Mapping[str, str] | Sequence[str], **options: Any
) -> pd.DataFrame:
    """tau from each domain to each other one: the worth of a source sample in samples of the target.

    For each target the law `transfer` is fitted once a source, to the target's rows in which no third domain
    was trained on: L = E + A·(D_target + tau·D_source)^-beta.

    Args:
        df: one row an evaluation of one domain. y: its loss or error. domain: column that names the domain
            evaluated.
        data: columns with the samples seen of each domain, as {domain: column}, or the columns where they are
            named after the domains.
        options: those of `fit` (bootstrap, cluster …).

    Returns:
        Columns target, source, tau, low, high, n, warnings; pairs without enough rows have a missing tau.

    Raises:
        UserError: no column of samples for a domain; fewer than two domains.
    """
    columns = dict(data) if isinstance(data, Mapping) else {name: name for name in data}
    domains = [d for d in df[domain].unique() if d in columns] if domain in df.columns else []
    if len(domains) < 2:
        raise UserError(
            f"transfer_matrix needs two domains or more in column {domain!r} with a column in data, "
            f"found {domains}."
        )
    rows = []
    for target in domains:
        for source in domains:
            if source == target:
                continue
            others = [columns[d] for d in columns if d not in (target, source)]
            part = df[(df[domain] == target) & (df[others] == 0).all(axis=1)]
            row: dict[str, Any] = {
                "target": target,
                "source": source,
                "tau": float("nan"),
                "low": float("nan"),
                "high": float("nan"),
                "n": len(part),
            }
            try:
                one = fit(
                    part, "transfer", y=y, x={"D": columns[target], "D_other": columns[source]}, **options
                )
                low, high = one.interval()["tau"]
                row |= {
                    "tau": one.params["tau"],
                    "low": low,
                    "high": high,
                    "warnings": " ".join(one.warnings),
                }
            except UserError as error:
                row["warnings"] = str(error)
            rows.append(row)
    return pd.DataFrame(rows)
