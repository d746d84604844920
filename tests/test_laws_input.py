"""Bad input is one sentence that names the column and the rows; nothing that only looks like a fit comes
back."""

import numpy as np
import pandas as pd
import pytest
from laws_data import curve, scattered

import rlkit
from rlkit.errors import UserError
from rlkit.laws import table


def with_value(column, value, row=3):
    df = scattered(n=20)
    df.loc[row, column] = value
    return df


DF = scattered(n=20)
BAD = [
    (with_value("loss", np.nan), {}, r"y \(column 'loss'\) is missing or infinite in 1 of 20 rows \(3\)"),
    (with_value("N", np.inf), {}, r"x\['N'\] \(column 'N'\) is missing or infinite in 1 of 20 rows \(3\)"),
    (with_value("loss", 0.0), {}, r"\) is zero or negative, which has no logarithm, in 1 of 20 rows \(3\)"),
    (with_value("loss", -2.0), {}, r"'loss'\) is zero or negative.*\(3\)"),
    (with_value("D", 0.0), {}, r"'D'\) is zero or negative.*\(3\)"),
    (DF.assign(N=1e9), {}, r"N is 1e\+09 in all 20 rows"),
    (DF.assign(loss=2.0), {}, r"'loss'\) is 2 in all 20 rows"),
    (DF.drop(columns="D"), {}, r"x\['D'\] is 'D', but there is no such column"),
    (scattered(n=5), {}, r"5 rows cannot determine the 5 parameters of 'chinchilla'"),
    (pd.concat([DF] * 2, ignore_index=True), {}, r"same row occurs more than once in 40 of 40 rows"),
    (DF.assign(run=1), {"cluster": "run"}, r"cluster 'run' has one value"),
    (DF.assign(g="a"), {"group": "g"}, r"group 'g' has 1 value"),
    (DF, {"weights": "w"}, r"weights is 'w', but there is no such column"),
    (DF.assign(w=-1.0), {"weights": "w"}, r"weights are not positive in 20 of 20"),
    (DF.assign(loss="x"), {}, r"'loss', which is not numeric"),
    (DF.assign(loss="0,317"), {}, r"'loss', which is not numeric"),  # no thousands begin with 0
    (DF, {"loss": "hubber"}, r"Unknown loss 'hubber'"),
    (DF, {"delta": 0.0}, r"delta is 0.0"),
    (DF, {"loss": "lad", "delta": 0.1}, r"delta is 0.1, which only the loss huber has"),
    (DF, {"loss": "binomial"}, r"loss='binomial' needs weights="),
    (DF, {"loss": "ls:3"}, "Unknown loss 'ls:3'"),
    (DF, {"bootstrap": True}, "bootstrap is True"),
    (DF, {"loss": "huber", "delta": 0}, "needs delta > 0"),
    (DF.assign(flag=True), {"exclude": "flag > true"}, "compare it with == true"),
    (DF, {"bootstrap": -1}, r"bootstrap is -1"),
    (DF, {"block": 5}, r"block is 5, with cluster None: give the column"),
    (DF.assign(run=[0, 1] * 10), {"block": "N", "cluster": "run"}, r"of several runs, cluster= alone"),
    (DF, {"exclude": "N > 1e99"}, r"exclude 'N > 1e99' matches no row"),
    (DF, {"exclude": "N ~ 3"}, r"write a comparison such as"),
    (DF, {"exclude": "N > many"}, r"'many' is not a number"),
    (DF, {"holdout": "M > 3"}, r"holdout is 'M', but there is no such column.*"),
    (DF, {"exclude": "N > 0"}, r"leave none of the 20 rows"),
    (DF, {"x": {"Q": "N"}}, r"x maps 'Q', and the law 'chinchilla' has the columns N, D"),
    (DF, {"x": "N"}, r"give x as a mapping"),
    (pd.DataFrame(), {}, r"at least one row"),
    (DF, {"law": "chinchila"}, r"Did you mean 'chinchilla'"),
    (
        DF.assign(U=DF["D"] * (1 + (DF.index == 4))),
        {"law": "data_constrained"},
        r"U \(unique.* exceeds D.*\(4\)",
    ),
    (pd.concat([DF.assign(g="a"), with_value("D", 0).assign(g="b")]), {"group": "g"}, r"In group 'b': x"),
]


@pytest.mark.parametrize(("df", "options", "message"), BAD, ids=[m[:40] for _, _, m in BAD])
def test_bad_input_is_one_clear_sentence(df, options, message):
    given = {"law": "chinchilla", "y": "loss", **options}
    with pytest.raises(UserError, match=message) as caught:
        rlkit.fit(df, **given)
    assert "\n" not in str(caught.value)


def test_a_pass_rate_of_zero_is_refused_only_under_a_logarithm():
    df = curve("well", 0)
    df.loc[0, "rate"] = 0.0
    with pytest.raises(UserError, match="no logarithm"):
        rlkit.fit(df, "sigmoid", y="rate", log=True)
    assert rlkit.fit(df, "sigmoid", y="rate", loss="ls").params["A"] == pytest.approx(0.42, abs=0.02)


def test_a_column_of_lists_does_not_hide_duplicate_rows():
    df = scattered(n=20).assign(tags=pd.Series([["a"]] * 20))
    assert rlkit.fit(df, "chinchilla", y="loss").table.record["rows"] == 20
    with pytest.raises(UserError, match="more than once"):
        rlkit.fit(pd.concat([df, df.head(1)], ignore_index=True), "chinchilla", y="loss")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("N < 3", [0, 1]),
        ("N >= 3", [2, 3]),
        ("N != 2", [0, 2, 3]),
        ("model == b", [1, 3]),
        ("2 highest loss", [0, 3]),
        ("1 lowest loss", [1]),
        ({"model": ["a"], "N": 3}, [2]),
        (np.array([True, False, False, True]), [0, 3]),
    ],
)
def test_rules_choose_rows(rule, expected):
    df = pd.DataFrame({"N": [1, 2, 3, 4], "model": ["a", "b", "a", "b"], "loss": [9.0, 1.0, 2.0, 5.0]})
    assert np.flatnonzero(table.matches(df, rule, "exclude")).tolist() == expected


def test_rules_are_recorded_and_never_evaluated():
    df = scattered()
    fit = rlkit.fit(df, "chinchilla", y="loss", exclude=["5 highest loss", "N < 1e8"])
    assert [e["rule"] for e in fit.table.record["exclude"]] == ["5 highest loss", "N < 1e8"]
    assert len(fit.table) == len(df) - int(((df["N"] < 1e8) | (df["loss"].rank() > len(df) - 5)).sum())
    with pytest.raises(UserError, match="no such column"):
        rlkit.fit(df, "chinchilla", y="loss", exclude="__import__('os').getpid() > 0")
