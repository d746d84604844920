"""Laws are ranked by rows that no fit saw."""

import numpy as np
import pandas as pd
import pytest
from laws_data import curve, planted, scattered

import rlkit
from rlkit.errors import UserError
from rlkit.laws import backtest, compare, fit_coverage, recover


def test_held_out_rows_are_never_read():
    df = scattered()
    big = df["N"] > 5e9
    assert 10 < big.sum() < 150
    poisoned = df.assign(loss=df["loss"].where(~big, np.nan), D=df["D"].where(~big, -1.0))
    one = rlkit.fit(df[~big].reset_index(drop=True), "chinchilla", y="loss", bootstrap=20)
    two = rlkit.fit(poisoned, "chinchilla", y="loss", holdout="N > 5e9", bootstrap=20)
    assert one.params == two.params
    np.testing.assert_array_equal(one.draws, two.draws)
    assert two.table.record["holdout"] == [{"rule": "N > 5e9", "rows": int(big.sum())}]


def test_a_backtest_predicts_rows_that_it_has_not_seen():
    test = backtest(scattered(), "chinchilla", y="loss", holdout="N > 5e9")
    assert test.rmse < 0.3 and 0.85 <= test.inside <= 1
    assert len(test.fit.table) + len(test.held_out) == len(scattered())
    found = test.held_out
    np.testing.assert_allclose(found["prediction_error"], found["prediction"] - found["loss"])
    assert f"on {len(test.held_out)} held-out rows: rmse {test.rmse:.4g}" in repr(test)
    with pytest.raises(UserError, match="Nothing is held out"):
        backtest(scattered(), "chinchilla", y="loss")


def test_compare_ranks_the_true_law_first_by_its_tail():
    df = planted("saturating_power", 120, noise=0.01).rename(columns={"x": "C"})
    options = {"y": "y", "x": {"x": "C"}, "loss": "ls"}
    found = compare(df, ["power", "saturating_power"], **options, holdout="C > 2e5")
    assert found["law"].tolist() == ["saturating_power", "power"]
    assert found["tail_rmse"].is_monotonic_increasing and set(found["n"]) == {(df["C"] <= 2e5).sum()}
    assert {"aic", "bic", "r2", "inside"} <= set(found.columns)
    of_a_study = compare(df.assign(held_out=df["C"] > 2e5), ["power", "saturating_power"], **options)
    assert of_a_study["tail_rmse"].tolist() == found["tail_rmse"].tolist()
    with pytest.raises(UserError, match="^Nothing is held out: give holdout="):
        compare(df, ["power", "saturating_power"], **options)


def test_a_law_with_a_better_fit_but_a_worse_tail_comes_second():
    options = {"y": "rate", "x": {"x": "C", "C": "C"}, "log": False, "holdout": "C > 2000"}
    found = compare(curve("well", 2).query("C > 200"), ["sigmoid", "power"], **options)
    assert found["law"].iloc[0] == "sigmoid"
    assert found["tail_bias"].abs().iloc[1] > 5 * found["tail_bias"].abs().iloc[0]


def test_compare_reports_a_law_that_cannot_be_fitted():
    df = planted("power", 12, 0.01).iloc[:8]
    names, columns = ["power", "sigmoid", "saturating_power"], {"x": "x", "C": "Q"}
    found = compare(df, names, y="y", x=columns, loss="ls", holdout="2 highest x")
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
    honest = recover(clustered, replicates=25).table.set_index("parameter").loc["A"]
    assert honest["coverage"] >= 0.85
    low, high = plain.interval()["A"]
    assert honest["median_width"] > 1.5 * (high - low)
