"""Fits against planted truths and against scipy and statsmodels; bad input is one sentence that
names the column and the rows, and nothing that only looks like a fit comes back."""

from functools import partial
from itertools import starmap

import cases
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from laws_data import TRUTHS, curve, planted, scattered
from scipy.optimize import minimize

import rlkit
from rlkit.errors import UserError
from rlkit.laws import laws, table
from rlkit.laws.law import law


def test_every_law_has_a_planted_truth():
    assert {name for name in laws if laws[name].function.__module__ == "rlkit.laws.forms"} == set(TRUTHS)


@pytest.mark.parametrize("name", TRUTHS)
def test_a_law_recovers_its_parameters(name):
    fit = rlkit.fit(planted(name), name, y="y", loss="ls")
    assert fit.params == pytest.approx(TRUTHS[name], rel=1e-4)
    noisy = rlkit.fit(planted(name, 2000, noise=0.002), name, y="y", loss="ls")
    near = 0.25 if name in ("data_constrained", "tan") else 0.02
    assert noisy.params == pytest.approx(TRUTHS[name], rel=near)


TRUTH = list(TRUTHS["data_constrained"].values())
GRID = [[np.exp(0.6), np.exp(a), 0.35, np.exp(b), 0.3] for a in (3, 6, 9) for b in (6, 9)]


@pytest.mark.parametrize(
    ("law", "data", "near"),
    [
        ("chinchilla", scattered, GRID),
        ("data_constrained", partial(planted, "data_constrained", 60, 0.02, 1), [TRUTH]),
        # chinchilla's best fit has all N beyond what U can use, where R_N has no slope
        ("data_constrained", partial(planted, "data_constrained", 60, 0.02, 4), [TRUTH]),
        # the starts agree on a worse optimum
        ("data_constrained", partial(planted, "data_constrained", 40, 0.05, 2),
         [[1.14, 25.2, 0.171, 77.0, 0.198, 25.2, 7.16]]),
    ],
)  # fmt: skip
def test_the_huber_optimum_is_no_worse_than_the_best_that_scipy_finds(law, data, near):
    df = data().rename(columns={"loss": "y"})
    form, y, columns = laws[law], df["y"].to_numpy(), {c: df[c].to_numpy() for c in laws[law].columns}
    fit = rlkit.fit(df, form, y="y", delta=1e-3, bootstrap=0)

    def objective(z):
        r = np.log(form(columns, form.from_z(z[None])[0])[0] / y)
        c = np.clip(r, -1e-3, 1e-3)
        return float(np.nan_to_num((c * (r - 0.5 * c)).sum(), nan=1e9))

    assert objective(fit.z) == pytest.approx(fit.objective, rel=1e-9)
    options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-9, "fatol": 1e-15}
    starts = (form.to_z(np.array(values)) for values in near)
    best = min(minimize(objective, z, method="Nelder-Mead", options=options).fun for z in starts)
    assert fit.objective <= best * (1 + 1e-9)
    assert law != "chinchilla" or fit.starts.agree >= 5


def test_weights_count_rows_of_a_sum():
    df = scattered(n=60)
    copies = np.random.default_rng(0).integers(1, 4, len(df))
    repeated = df.loc[df.index.repeat(copies)].assign(copy=lambda d: np.arange(len(d)))
    weighted = rlkit.fit(df.assign(w=copies), "chinchilla", y="loss", weights="w")
    whole = rlkit.fit(repeated.reset_index(drop=True), "chinchilla", y="loss")
    assert weighted.objective == pytest.approx(whole.objective, rel=1e-9)
    assert weighted.params == pytest.approx(whole.params, rel=1e-5)


def test_least_squares_of_a_power_law_is_ordinary_least_squares_in_logs():
    df = planted("power", 40, noise=0.05)
    fit = rlkit.fit(df, "power", y="y", loss="ls", bootstrap=0)
    ols = sm.OLS(np.log(df["y"]), sm.add_constant(np.log(df["x"]))).fit()
    assert fit.params["alpha"] == pytest.approx(-ols.params["x"], rel=1e-9)
    assert np.log(fit.params["A"]) == pytest.approx(ols.params["const"], rel=1e-9)
    assert fit.criteria.aic == pytest.approx(ols.aic, rel=1e-9)
    assert fit.criteria.bic == pytest.approx(ols.bic, rel=1e-9)
    assert fit.criteria.r2 == pytest.approx(ols.rsquared, rel=1e-9)
    low, high = fit.interval(0.95)["alpha"]  # linear in the coordinates, so the profile is the t interval
    np.testing.assert_allclose([-high, -low], ols.conf_int().loc["x"], rtol=1e-3)
    assert fit.stderr["alpha"] == pytest.approx(ols.bse["x"], rel=1e-3)


def test_a_law_that_does_not_broadcast_is_refused():
    @law("scalar_only")
    def scalar_only(x, *, a):
        return np.outer(np.ones(3), x) * a[0]

    with pytest.raises(UserError, match="broadcast"):
        rlkit.fit(planted("power"), "scalar_only", y="y")


DF = scattered(n=20)
COPIES = pd.concat([DF] * 2, ignore_index=True)
USED = DF.assign(U=DF["D"] * (1 + (DF.index == 4)))
GROUPS = pd.concat([DF.assign(g="a"), DF.assign(g="b", D=DF["D"].where(DF.index != 3, 0))])


def bad(rows, cells, assign, drop, options, says):
    df = scattered(n=rows or 1).assign(**assign).drop(columns=drop).head(rows)
    df.loc[[3] if cells else [], list(cells)] = list(cells.values())
    return df, options, says


@pytest.mark.parametrize("df, options, says", [
    *starmap(bad, cases.cases("laws_bad_input")),
    (COPIES, {}, "same row occurs more than once in 40 of 40 rows"),
    (USED, {"law": "data_constrained"}, r"U \(unique.* exceeds D.*\(4\)"),
    (GROUPS, {"group": "g"}, "In group 'b': x"),
])  # fmt: skip
def test_bad_input_is_one_clear_sentence(df, options, says):
    with pytest.raises(UserError, match=says) as caught:
        rlkit.fit(df, **{"law": "chinchilla", "y": "loss", **options})
    assert "\n" not in str(caught.value)


def test_a_pass_rate_of_zero_is_refused_only_under_a_logarithm_and_lists_hide_no_duplicates():
    df = curve("well", 0)
    df.loc[0, "rate"] = 0.0
    with pytest.raises(UserError, match="no logarithm"):
        rlkit.fit(df, "sigmoid", y="rate", log=True)
    assert rlkit.fit(df, "sigmoid", y="rate", loss="ls").params["A"] == pytest.approx(0.42, abs=0.02)
    df = scattered(n=20).assign(tags=pd.Series([["a"]] * 20))
    assert rlkit.fit(df, "chinchilla", y="loss").table.record["rows"] == 20
    with pytest.raises(UserError, match="more than once"):
        rlkit.fit(pd.concat([df, df.head(1)], ignore_index=True), "chinchilla", y="loss")


@pytest.mark.parametrize(*cases.table("laws_rules"))
def test_rules_choose_rows(rule, expected):
    df = pd.DataFrame({"N": [1, 2, 3, 4], "model": ["a", "b", "a", "b"], "loss": [9.0, 1.0, None, 5.0]})
    df["diverged"] = [False, False, True, False]
    assert np.flatnonzero(table.matches(df, rule, "exclude")).tolist() == expected


def test_rules_are_recorded():
    df = scattered().assign(source=["read off", *["table"] * 239])
    fit = rlkit.fit(df, "chinchilla", y="loss", exclude=[{"source": ["read off"]}, df["N"] < 1e8])
    assert [e["rule"] for e in fit.table.record["exclude"]] == ["source in ['read off']", "a mask of rows"]
    assert len(fit.table) == int(((df["N"] >= 1e8) & (df["source"] == "table")).sum())
    assert table.matches(df, {"N": df["N"].to_numpy()[5:6]}, "exclude").nonzero()[0].tolist() == [5]
    chosen = table.matches(df.sort_values("N"), df["N"] < 1e8, "exclude")  # a mask has its index
    assert chosen[: (df["N"] < 1e8).sum()].all() and chosen.sum() == (df["N"] < 1e8).sum()
