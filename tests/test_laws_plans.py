"""Laws are ranked by rows that no fit saw and tested by simulation; plans: closed forms, and what a design can show."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import table
from laws_data import CHINCHILLA, curve, planted, scattered
from scipy import stats

import rlkit
from rlkit.errors import UserError
from rlkit.laws import allocate, backtest, compare, design, fit_coverage, plan, recover


def test_held_out_rows_are_never_read():
    df = scattered()
    big = df["N"] > 5e9
    assert 10 < big.sum() < 150
    poisoned = df.assign(loss=df["loss"].where(~big, np.nan), D=df["D"].where(~big, -1.0))
    one = rlkit.fit(df[~big].reset_index(drop=True), "chinchilla", y="loss", bootstrap=20)
    two = rlkit.fit(poisoned, "chinchilla", y="loss", holdout=big, bootstrap=20)
    assert one.params == two.params
    np.testing.assert_array_equal(one.resampled.values, two.resampled.values)
    assert two.table.record["holdout"] == [{"rule": "a mask of rows", "rows": int(big.sum())}]


def test_a_backtest_predicts_rows_that_it_has_not_seen():
    df = scattered().assign(low=0.0)  # a column of a name that the result has, too
    test = backtest(df, "chinchilla", y="loss", holdout=df["N"] > 5e9)
    assert test.rmse < 0.3 and 0.85 <= test.inside <= 1
    assert len(test.fit.table) + len(test.held_out) == len(scattered())
    found = test.held_out
    np.testing.assert_allclose(found["prediction_error"], found["prediction"] - found["loss"])
    assert (found["low"] > 1).all()
    assert f"on {len(test.held_out)} held-out rows: rmse {test.rmse:.4g}" in repr(test)
    with pytest.raises(UserError, match="Nothing is held out"):
        backtest(scattered(), "chinchilla", y="loss")


def test_compare_ranks_the_true_law_first_by_its_tail():
    df = planted("saturating_power", 120, noise=0.01).rename(columns={"x": "C"})
    options = {"y": "y", "x": {"x": "C"}, "loss": "ls"}
    found = compare(df, ["power", "saturating_power"], **options, holdout=df["C"] > 2e5)
    assert found["law"].tolist() == ["saturating_power", "power"]
    assert found["tail_rmse"].is_monotonic_increasing and set(found["n"]) == {(df["C"] <= 2e5).sum()}
    assert {"aic", "bic", "r2", "inside"} <= set(found.columns)
    of_a_study = compare(df.assign(held_out=df["C"] > 2e5), ["power", "saturating_power"], **options)
    assert of_a_study["tail_rmse"].tolist() == found["tail_rmse"].tolist()
    with pytest.raises(UserError, match="^Nothing is held out: give holdout="):
        compare(df, ["power", "saturating_power"], **options)


def test_a_law_with_a_better_fit_but_a_worse_tail_comes_second():
    df = curve("well", 2).query("C > 200")
    options = {"y": "rate", "x": {"x": "C", "C": "C"}, "log": False, "holdout": df["C"] > 2000}
    found = compare(df, ["sigmoid", "power"], **options)
    assert found["law"].iloc[0] == "sigmoid"
    assert found["tail_bias"].abs().iloc[1] > 5 * found["tail_bias"].abs().iloc[0]


def test_compare_reports_a_law_that_cannot_be_fitted():
    df = planted("power", 12, 0.01).iloc[:8]
    names, columns = ["power", "sigmoid", "saturating_power"], {"x": "x", "C": "Q"}
    found = compare(df, names, y="y", x=columns, loss="ls", holdout=df["x"].rank() > 6)
    assert found["law"].iloc[-1] == "sigmoid" and "no such column" in found["failed"].iloc[-1]
    assert found["tail_rmse"].notna().tolist() == [True, True, False]
    with pytest.raises(UserError, match="two laws or more"):
        compare(df, ["power"], y="y")


def test_recovery_finds_honest_intervals_honest_and_takes_one_group_at_a_time():
    fit = rlkit.fit(curve("good", 4), "sigmoid", y="rate")
    found = recover(fit, replicates=40)
    assert found.replicates == 40 and found.failed == 0
    assert (found.table["coverage"] >= 0.85).all()
    assert found.table["truth"].tolist() == list(fit.params.values())
    assert "If the law is true, intervals of nominal 95% are honest" in found.statement
    groups = pd.concat([planted("power", 20, 0.01).assign(size=size) for size in "ab"], ignore_index=True)
    of_problems = fit_coverage(pd.DataFrame({"n": 20, "c": range(20)}), bootstrap=20)
    with pytest.raises(UserError, match="resample graded samples, which recover does not simulate"):
        recover(of_problems)
    with pytest.raises(UserError, match=r"one group at a time: give fit\['a'\]"):
        recover(rlkit.fit(groups, "power", y="y", group="size"))


def test_recovery_sees_that_plain_intervals_of_shifted_runs_are_too_short():
    df = curve("good", 4, runs=8, offset=0.01)
    clustered = rlkit.fit(df, "sigmoid", y="rate", bootstrap=100, cluster="run")
    plain = rlkit.fit(df, "sigmoid", y="rate", bootstrap=100)
    honest: Any = recover(clustered, replicates=25).table.set_index("parameter").loc["A"]
    assert honest["coverage"] >= 0.85
    low, high = plain.interval()["A"]
    assert honest["median_width"] > 1.5 * (high - low)


def closed_form(C, E, A, alpha, B, beta):
    """Hoffmann et al. 2022, eq. 4."""
    G = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    N = G * (C / 6) ** (beta / (alpha + beta))
    D = C / 6 / N
    return N, D, E + A / N**alpha + B / D**beta


@pytest.mark.parametrize("C", [1e18, 1e21, 5.76e23])
def test_the_optimum_is_the_closed_form(C):
    row = allocate("chinchilla", C, params=CHINCHILLA).iloc[0]
    N, D, L = closed_form(C, **CHINCHILLA)
    assert row["N"] == pytest.approx(N, rel=1e-4)
    assert row["D"] == pytest.approx(D, rel=1e-4)
    assert row["y"] == pytest.approx(L, rel=1e-8)
    assert not row["at_edge"]


def test_a_fit_carries_its_uncertainty_into_the_plan_which_says_how_many_seeds_show_a_difference():
    fit = rlkit.fit(scattered(), "chinchilla", y="loss", bootstrap=100)
    row = allocate(fit, [1e21]).iloc[0]
    assert row["N_low"] < row["N"] < row["N_high"]
    assert row["y_low"] < row["y"] < row["y_high"]
    # two cells of n seeds differ with variance 2·0.03²/n: 0.02 is 2.8 of its roots at n = 2·0.03²·(2.8/0.02)²
    assert plan({"difference": 0.02, "spread": 0.03}).summary().startswith("About 36 seeds a cell would show")
    assert "About 9 seeds" in plan({"difference": 0.04, "spread": 0.03}).summary()
    assert "ask more problems" in plan({"difference": 0.02, "spread": 0.03, "error": 0.01}).summary()


def gradient(N, D):
    """(n, 5) derivatives of ln L in E, A, alpha, B, beta at the planted parameters."""
    t = CHINCHILLA
    n, d = N ** -t["alpha"], D ** -t["beta"]
    J = [np.ones(len(n)), n, -t["A"] * n * np.log(N), d, -t["B"] * d * np.log(D)]
    return np.column_stack(J) / np.asarray(t["E"] + t["A"] * n + t["B"] * d)[:, None]


def test_few_rows_widen_the_interval_of_an_allocation_as_they_do_that_of_the_fit(tmp_path):
    df = planted("chinchilla", 12, noise=0.001)
    fit = rlkit.fit(df, "chinchilla", y="y", bootstrap=200)
    row = allocate(fit, 1e21).iloc[0]
    J, at = (gradient(df["N"].to_numpy(), df["D"].to_numpy()), gradient(*row[["N", "D"]].to_numpy(float)[:, None]))
    sd = np.sqrt((at @ np.linalg.inv(J.T @ J) @ at.T).item() * 2 * fit.objective / 7)
    width = 2 * stats.t.ppf(0.975, 7) * sd  # at the optimum y does not move with N
    assert np.log(row["y_high"] / row["y_low"]) == pytest.approx(width, rel=0.1)
    fit.to_json(tmp_path / "fit.json")
    again = plan({"fit": str(tmp_path / "fit.json"), "budget": [1e21]}).allocation
    assert again is not None and again.iloc[0].to_dict() == pytest.approx(row.to_dict(), rel=1e-9)


def test_a_strong_design_has_the_intervals_of_the_information_matrix():
    cells = np.meshgrid(np.geomspace(5e7, 1e10, 6), np.geomspace(1e9, 3e11, 6), indexing="ij")
    runs = pd.DataFrame(dict(zip("ND", map(np.ravel, cells), strict=True)))
    found = design("chinchilla", runs, params=CHINCHILLA, noise=0.001, draws=1000)
    J = gradient(runs["N"], runs["D"])
    width = 2 * 1.96 * 0.001 * np.sqrt(np.diagonal(np.linalg.inv(J.T @ J)))
    np.testing.assert_allclose(found["width"], width, rtol=0.12)
    assert found.attrs == {"draws": 1000, "failed": 0} and not found["at_bound"].any()


def test_a_design_says_what_it_cannot_show():
    content = {"law": "chinchilla", "params": CHINCHILLA, "noise": 0.1}
    text = plan({**content, "design": {"N": [1e8, 3e8, 1e9], "D": [1e9, 3e9, 1e10]}}).summary()
    assert "of the estimates of 200 simulated studies" in text
    assert "simulated studies E ends at a bound" in text
    told = "not determine the 5 parameters of 'chinchilla': with 2 of N, 3 of D"
    with pytest.raises(UserError, match=told):
        plan({**content, "design": {"N": [1e8, 1e9], "D": [1e9, 3e9, 1e10]}})


@pytest.mark.parametrize("unit", [1.0, 1e18])
def test_a_design_is_the_same_in_every_unit(unit):
    runs = pd.DataFrame({"C": np.geomspace(1, 100, 12) * unit})
    params = {"R0": 0.1, "A": 0.7, "C_mid": 8 * unit, "B": 1.2}
    width = design("sigmoid", runs, params=params, noise=0.01, draws=1000)["width"]
    assert width.tolist() == pytest.approx([0.0753, 0.0556, 1.929 * unit, 0.416], rel=0.1)


def test_a_plan_file_does_all_of_it(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "law: chinchilla\nparams: {E: 1.69, A: 406.4, alpha: 0.34, B: 410.7, beta: 0.28}\nbudget: [1.0e+21]\n"
        "design: {N: [1.0e+8, 1.0e+9, 5.0e+9], D: [1.0e+9, 1.0e+10, 1.0e+11]}\nseeds: 2\nnoise: 0.005\n"
    )
    result = plan(path)
    assert result.allocation is not None and result.design is not None
    assert result.allocation["N"].iloc[0] == pytest.approx(closed_form(1e21, **CHINCHILLA)[0], rel=1e-4)
    once = plan(path, {"seeds": 1}).design
    assert once is not None and once["width"].iloc[1] > result.design["width"].iloc[1]
    with pytest.raises(UserError, match="Did you mean 'noise'"):
        plan(path, {"nosie": 1})


def test_a_plan_says_what_its_fit_cannot_and_where_it_leaves_its_data(tmp_path):
    table = scattered()
    fit = rlkit.fit(table, "chinchilla", y="loss")
    fit.to_json(tmp_path / "fit.json")
    cells = {"N": [1e8, 1e9, 1e10], "D": [1e9, 1e10, 1e11]}
    options = {"fit": str(tmp_path / "fit.json"), "design": cells}
    near, far = (plan({**options, "budget": [c]}) for c in (1e20, 1e27))
    assert near.params == pytest.approx(fit.params) and "fitted with N = N, D = D, y = loss" in near.summary()
    assert [text in near.summary() for text in fit.warnings] == [True] * len(fit.warnings)
    assert "! N is" not in near.summary() and "costs 6·N·D FLOPs" in near.summary()
    assert f"and the fit saw {table['N'].min():.3g} to {table['N'].max():.3g}" in far.summary()


@pytest.mark.parametrize(*table("laws_bad_plan_is_one_sentence"))
def test_a_bad_plan_is_one_sentence(content, message):
    with pytest.raises(UserError, match=message):
        plan(content)
