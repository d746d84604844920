"""rlkit.fit: from a table to a LawFit."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from rlkit.errors import UserError
from rlkit.laws import report, table
from rlkit.laws.estimate import Estimate
from rlkit.laws.law import Law, Space, resolve
from rlkit.laws.optimum import search
from rlkit.laws.solver import Loss, make_loss

RESAMPLES = 1000


class LawFit(Estimate):
    """A fitted law with everything that decided it, its uncertainty and its predictions."""

    warnings = cached_property(report.warnings)
    lack_of_fit = property(report.lack_of_fit)
    criteria = property(report.criteria)
    summary = report.summary
    to_json = report.to_json
    to_latex = report.to_latex

    @classmethod
    def of(cls, rows: table.Table, law: Law, loss: Loss, space: Space, **options: Any) -> "LawFit":
        """The law fitted to a table; options are the fields of `Estimate`."""
        return cls(**vars(search(rows, law, loss, space)), **options)

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v:.4g}" for k, v in self.params.items())
        return f"LawFit({self.law.name}: {values}; n={len(self.table)})"


def fit(
    df: pd.DataFrame, law: str | Law, *, y: str, x: Mapping[str, str] | str | None = None, group: str | None = None,
    loss: str | Loss | None = None, delta: float | None = None, log: bool | None = None, weights: str | None = None,
    bootstrap: int | None = None, resample: Literal["case", "residual"] | None = None,
    cluster: str | Sequence[str] | None = None, block: str | None = None, seed: int = 0,
    exclude: Any = None, holdout: Any = None,
) -> Any:  # fmt: skip
    """Fit a law to the rows of a table.

    Args:
        law: a name (see `rlkit.laws.laws`) or a Law.
        y: column of the measured quantity. x: the law's columns to the table's; a lone name for a one-column law.
        group: column; a separate fit for each of its values, returned as a dict.
        loss: ls (the default), huber (the default where there is a delta), lad, or binomial (y a pass rate, weights
            the number of samples). The objective is the sum over rows, never the mean.
        delta: of huber, in units of the residual; 1e-3 where none is given.
        log: residuals in ln y (True) or y (False); the default is the law's own space.
        weights: column, e.g. the number of samples behind each row: inverse variances, up to a factor.
        bootstrap: number of resamples; by default 1,000, drawn when first needed, and with 0 intervals are profiles.
        resample: residuals ("residual", the default of ls and binomial) or rows ("case", that of robust losses).
        cluster: column(s); whole clusters are resampled (run, seed, prompt).
        block: the column of time, where the rows of one run are correlated in time: noise is drawn as a first-order
            autoregression estimated from the residuals.
        exclude, holdout: rules for rows that are not fitted (rlkit.laws.table). Rows with a true column `held_out` (a
            study's frozen cells) never are.

    Returns:
        A LawFit, or a dict of group to LawFit; a UserError is one sentence naming column and rows.
    """
    form, target = resolve(law), make_loss(loss, delta)
    if target.name == "binomial" and weights is None:
        raise UserError("loss='binomial' needs weights=, the column with each pass rate's number of samples.")
    count = RESAMPLES if bootstrap is None else bootstrap
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UserError(f"bootstrap is {bootstrap!r}: give the number of resamples, 0 or more.")
    if block is not None and (cluster is not None or not isinstance(block, str)):
        told = "give the column that holds time, of one run; of several runs, cluster= alone"
        raise UserError(f"block is {block!r}, with cluster {cluster!r}: {told}.")
    drawn = cluster is not None or block is not None or target.robust
    plan = {"count": count, "kind": resample or ("case" if drawn else "residual"), "seed": seed}
    space: Space = (
        form.space if log is None or (log and form.space == "loglog") else "log" if log else "linear"
    )
    space = "linear" if target.name == "binomial" else space
    kept, record = table.leave_out(df, exclude, holdout)
    options = {"weights": weights, "cluster": cluster, "block": block}

    def one(part: pd.DataFrame, notes: Sequence[str] = ()) -> LawFit:
        rows = table.build(part, form, y, x, space, record, options)
        made = LawFit.of(rows, form, target, space, **plan, notes=tuple(notes))
        if bootstrap:
            _ = made.resampled  # what is wrong with the resamples that were asked for is said now
        return made

    return one(kept) if group is None else _groups(df, kept, group, one)


def _groups(df: pd.DataFrame, kept: pd.DataFrame, group: str, one: Any) -> dict[Any, LawFit]:
    values = table.column(df, group, "group")
    if values.nunique() < 2:
        raise UserError(f"group {group!r} has {values.nunique()} value in {len(df)} rows: leave group out.")
    notes = []
    if missing := int(kept[group].isna().sum()):
        notes.append(f"{missing} of {len(kept)} rows have no value of {group} and are in no fit.")
    if left := sorted(map(str, set(values.dropna()) - set(kept[group]))):
        notes.append(f"No row of {group} {', '.join(left)} may be fitted: all are held out or excluded.")
    fits = {}
    for name, part in kept.groupby(group, sort=True):
        try:
            fits[name] = one(part, notes)
        except UserError as error:
            raise UserError(f"In group {name!r}: {error}") from None
    return fits
