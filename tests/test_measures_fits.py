"""The best split of a budget of rollouts, on curves with a planted n*(C)."""

import itertools

import numpy as np
import pandas as pd
import pytest
from laws_data import answers
from scipy.special import expit

import rlkit
from rlkit.errors import UserError
from rlkit.measures.fits import at_budgets, rollouts_law

TOTAL, PROBLEMS = 65_536, 150


def study(seed: int = 0, exponent: float = 0.3, n=(2, 4, 8, 16, 32), prompts=(16, 64), seeds: int = 2):
    """Samples and facts of runs whose pass@1 is best at n* = 8·(C/8192)^exponent, and 16 prompts a little better."""
    rng, parts, facts = np.random.default_rng(seed), [], []
    hard = rng.normal(0, 1, PROBLEMS)
    for rollouts, count, run in itertools.product(n, prompts, range(seeds)):
        name, luck = f"{rollouts}-{count}-{run}", rng.normal(0, 0.05)
        facts.append({"run": name, "rollout.n": rollouts, "data.train_batch_size": count})
        last = TOTAL // (rollouts * count)
        for step in sorted({0, *(last * i // 8 for i in range(1, 9))}):
            spent = max(step * rollouts * count, 1)
            off = np.log(rollouts / 8) - exponent * np.log(spent / 8192)
            logit = 0.5 * np.log(spent / 8192) - 0.4 * off**2 - 0.1 * (count == 64) + luck + hard
            right = rng.random((PROBLEMS, 2)) < expit(logit)[:, None]
            parts.append(answers(right, run=name, cell=f"{rollouts}-{count}", step=step))
    return pd.concat(parts, ignore_index=True), pd.DataFrame(facts)


@pytest.fixture(scope="module")
def planted():
    return study()


def test_every_split_of_a_budget_has_a_row_and_one_is_best(planted):
    table = at_budgets(*planted, budgets=4)
    assert len(table) == 4 * 10 and (table["runs"] == 2).all()
    assert table.groupby("budget")["best"].sum().tolist() == [1, 1, 1, 1]
    spent = table["rollout.n"] * table["data.train_batch_size"] * table["steps"]
    np.testing.assert_allclose(spent, table["budget"])
    assert table["budget"].max() == pytest.approx(TOTAL)
    assert table.query("best")["data.train_batch_size"].mode().iloc[0] == 16


def test_the_law_of_the_best_rollouts_is_found_with_its_interval(planted):
    fit = rollouts_law(*planted, bootstrap=300)
    rising = {name: (-high, -low) for name, (low, high) in fit.interval().items()}["alpha"]
    assert rising[0] < 0.3 < rising[1] and rising[0] > 0
    band = fit.predict({"budget": [8192.0]}, band="confidence").iloc[0]
    assert band["low"] < 8 < band["high"] and band["high"] / band["low"] < 3
    assert "over 10 splits' seeds and 150 problems" in " ".join(fit.warnings)


def test_a_problem_that_was_not_graded_in_one_run_is_left_out_there(planted):
    evals, df = planted
    lost = (evals["run"] == "2-16-0") & (evals["task_id"] == 3)
    broken = evals.assign(correct=evals["correct"].astype(object).mask(lost, None))
    whole, partly = at_budgets(evals, df), at_budgets(broken, df)
    assert partly["pass@1"].notna().all() and partly["best"].tolist() == whole["best"].tolist()
    np.testing.assert_allclose(partly["pass@1"], whole["pass@1"], atol=0.02)
    fits = [rollouts_law(rows, df, bootstrap=0).params["alpha"] for rows in (evals, broken)]
    assert fits[0] == pytest.approx(fits[1], abs=0.05)


def test_a_best_value_at_the_edge_is_said_and_runs_without_a_comparison_are_refused(planted):
    fit = rollouts_law(*study(n=(8, 16, 32), prompts=(16,)), bootstrap=50)
    assert any("the least or largest tried" in text for text in fit.warnings)
    with pytest.raises(UserError, match="The best rollout.n is 16 at every budget"):
        rollouts_law(*study(n=(16, 32, 64), prompts=(16,), exponent=0.1))
    evals, df = planted
    with pytest.raises(UserError, match="needs three values of it or more, and these runs have 2"):
        at_budgets(evals, df[df["rollout.n"] < 8])
    with pytest.raises(UserError, match="no budget in common"):
        at_budgets(evals[evals["step"] == 0], df)


def test_a_plan_splits_a_budget_by_the_law(planted, tmp_path):
    fit = rollouts_law(*planted, bootstrap=300)
    fit.to_json(tmp_path / "rollouts.json")
    result = rlkit.plan({"fit": str(tmp_path / "rollouts.json"), "prompts": 32, "budget": [8192, 262_144]})
    row = result.allocation.iloc[0]
    assert row["rollout.n"] == pytest.approx(fit.predict({"budget": [8192.0]}).iloc[0])
    assert row["low"] < row["rollout.n"] < row["high"]
    assert row["steps"] == pytest.approx(8192 / (32 * round(row["rollout.n"])))
    text = result.summary()
    assert "rollouts a prompt" in text and "! budget is 8.19e+03 to 2.62e+05 here, and the fit saw" in text
    falling = {"law": "power", "params": {"A": 300, "alpha": 0.45}, "prompts": 16, "budget": [1e6]}
    assert "A group of fewer than 2 rollouts has nothing to compare" in rlkit.plan(falling).summary()
    with pytest.raises(UserError, match="a law of one column, the budget in rollouts"):
        rlkit.plan({"law": "chinchilla", "params": {"E": 1, "A": 1, "alpha": 1, "B": 1, "beta": 1},
                    "prompts": 8, "budget": [1e4]})  # fmt: skip
