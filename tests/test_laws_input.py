"""Bad input is one sentence that names the column and the rows; nothing that only looks like a fit comes
back."""

import re

import cases
import numpy as np
import pandas as pd
import pytest
from laws_data import curve, scattered

import rlkit
from rlkit.errors import UserError
from rlkit.laws import table

DF = scattered(n=20)
COPIES = pd.concat([DF] * 2, ignore_index=True)
USED = DF.assign(U=DF["D"] * (1 + (DF.index == 4)))
GROUPS = pd.concat([DF.assign(g="a"), DF.assign(g="b", D=DF["D"].where(DF.index != 3, 0))])


@pytest.mark.parametrize(*cases.table("laws_bad_input"))
def test_bad_input_is_one_clear_sentence(rows, cells, assign, drop, options, says):
    df = scattered(n=rows or 1).assign(**assign).drop(columns=drop).head(rows)
    df.loc[[3] if cells else [], list(cells)] = list(cells.values())
    said = refusal(df, options)
    assert re.search(says, said) and "\n" not in said


def refusal(df, options) -> str:
    """The error of a fit that is refused."""
    given = {"law": "chinchilla", "y": "loss", **options}
    with pytest.raises(UserError) as caught:
        rlkit.fit(df, **given)
    return str(caught.value)


@pytest.mark.parametrize("df, options, says", [
    (COPIES, {}, "same row occurs more than once in 40 of 40 rows"),
    (USED, {"law": "data_constrained"}, r"U \(unique.* exceeds D.*\(4\)"),
    (GROUPS, {"group": "g"}, "In group 'b': x"),
], ids=["copies", "more unique than used", "a group"])  # fmt: skip
def test_rows_that_cannot_be_together_are_one_clear_sentence(df, options, says):
    said = refusal(df, options)
    assert re.search(says, said) and "\n" not in said


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


RULES = {"N < 3": [0, 1], "N >= 3": [2, 3], "N != 2": [0, 2, 3]}
RULES |= {"model == b": [1, 3], "2 highest loss": [0, 3], "1 lowest loss": [1]}
MASKS = [({"model": ["a"], "N": 3}, [2]), (np.array([True, False, False, True]), [0, 3])]


@pytest.mark.parametrize(("rule", "expected"), [*RULES.items(), *MASKS])
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
