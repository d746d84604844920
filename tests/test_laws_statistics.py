"""Statistics that a law stands on: its test against replicates, honest noise, optima that are optima, pass rates."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cases import table
from laws_data import answers, curve, planted
from scipy.optimize import least_squares
from scipy.special import expit

import rlkit
from rlkit.errors import UserError
from rlkit.laws import backtest, compare, fit_pass_rates, laws
from rlkit.laws.fitting import with_draws

SIZES = np.repeat([1e4, 3e4, 6e4, 1e5, 3e5], 2)


def study(bend: float = 0.0, noise: float = 0.02, seed: int = 0) -> pd.DataFrame:
    """Two seeds of five sizes on a power law of size, bent in ln N."""
    rng = np.random.default_rng(seed)
    straight = 1 - 0.2 * np.log(SIZES) - bend * np.log(SIZES / 3e4) ** 2
    error = np.exp(straight + noise * rng.standard_normal(10))
    return pd.DataFrame({"N": SIZES, "error": error, "seed": [0, 1] * 5, "run": range(10)})


def test_exclude_holds_for_held_out_rows_too():
    x = np.geomspace(1e3, 1e6, 12)
    df = pd.DataFrame({"x": x, "y": 2 * x**-0.3, "status": ["finished"] * 11 + ["failed"]})
    df.loc[11, "y"] = 1.0  # a diverged run among the held-out ones
    options = {"y": "y", "holdout": df["x"] > 2e5, "exclude": {"status": ["failed"]}}
    found = backtest(df, "power", **options)
    assert "failed" not in set(found.held_out["status"]) and found.rmse < 1e-6
    assert compare(df, ["power", "saturating_power"], **options)["tail_rmse"].min() < 1e-6


@pytest.mark.parametrize(*table("held_out_bad"))
def test_held_out_is_true_or_false_or_refused(bad):
    x = np.geomspace(1e3, 1e6, 8)
    df = pd.DataFrame({"x": x, "y": 2 * x**-0.3, "held_out": bad})
    with pytest.raises(UserError, match="held_out is neither true nor false"):
        rlkit.fit(df, "power", y="y")
    assert len(rlkit.fit(df.assign(held_out=[0] * 6 + [1] * 2), "power", y="y").table) == 6


def test_rules_are_applied_before_groups_are_made():
    parts = [planted("power", 20, 0.01, i).assign(g=name) for i, name in enumerate("ab")]
    df = pd.concat(parts, ignore_index=True).assign(held_out=lambda d: d["g"] == "b")
    fits = rlkit.fit(df, "power", y="y", group="g")
    assert list(fits) == ["a"] and any("No row of g b may be fitted" in text for text in fits["a"].warnings)
    df = df.drop(columns="held_out")
    highest = rlkit.fit(df, "power", y="y", group="g", exclude=df["y"].rank() > 35)
    assert sum(len(fit.table) for fit in highest.values()) == 35
    df.loc[0, "g"] = None
    found = rlkit.fit(df, "power", y="y", group="g")["a"]
    assert "1 of 40 rows have no value of g and are in no fit." in found.warnings


def test_a_law_of_ones_own_is_fitted_and_zero_is_allowed_where_no_logarithm_is_taken_and_percent_is_not():
    @rlkit.law("of_a_share", linear=("c", "k"), bounds={"t": (-np.inf, np.inf)}, starts={"t": (-2.0, 1.0)})
    def of_a_share(share, *, c, k, t):
        return c + k * np.exp(t * share)

    share = np.linspace(-0.5, 1, 13)
    fit = rlkit.fit(pd.DataFrame({"share": share, "y": 0.2 + 0.5 * np.exp(-2 * share)}), "of_a_share", y="y")
    assert fit.params == pytest.approx({"c": 0.2, "k": 0.5, "t": -2.0}, rel=1e-5)
    at_start = curve("well", 0)
    at_start.loc[0, "C"] = 0.0  # a sigmoid is R0 there
    assert rlkit.fit(at_start, "sigmoid", y="rate", bootstrap=0).params["A"] == pytest.approx(0.42, abs=0.03)
    with pytest.raises(UserError, match=r"reaches 4\d.*takes shares of 0 to 1: divide percent by 100"):
        rlkit.fit(at_start.assign(rate=at_start["rate"] * 100), "sigmoid", y="rate")


@pytest.mark.parametrize("name", ["power", "saturating_power"])
def test_a_law_that_replicates_reject_says_so_and_is_not_recovered(name):
    fit = rlkit.fit(study(bend=0.08), name, y="error", x="N", bootstrap=0)
    assert fit.lack_of_fit.p < 1e-3 and any("is rejected by its own data" in text for text in fit.warnings)
    with pytest.raises(UserError, match="is rejected by its own data"):
        rlkit.recover(fit, replicates=5)


def test_the_lack_of_fit_test_holds_its_level_and_aicc_has_the_small_sample_term():
    options = {"y": "error", "x": "N", "bootstrap": 0}
    found = [rlkit.fit(study(seed=s), "power", **options).lack_of_fit.p for s in range(200)]
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.1
    criteria = rlkit.fit(study(), "power", **options).criteria
    assert criteria.aicc == pytest.approx(criteria.aic + 2 + 2 * 3 * 4 / (10 - 3 - 1))
    assert rlkit.fit(study().drop_duplicates("N"), "power", y="error", x="N", bootstrap=0).lack_of_fit is None


def test_tan_says_when_its_levels_are_no_line():
    rows = [(N, X, s) for N in (1e4, 3e4, 1e5, 3e5) for X in (10, 20, 40, 80, 160) for s in (0, 1)]
    df = pd.DataFrame(rows, columns=["N", "X", "seed"])
    level = df["N"].map(dict(zip((1e4, 3e4, 1e5, 3e5), (0.5, 1.3, 0.2, 0.9), strict=True)))
    slope = 0.3 * df["N"] / (df["N"] + 5e4)
    noise = np.random.default_rng(0).normal(0, 0.01, len(df))
    df["loss"] = np.exp(level - slope * np.log(df["X"]) + noise)
    bent = rlkit.fit(df, "tan", y="loss", bootstrap=0)
    assert any(text.startswith("E0 is no line of ln N") for text in bent.warnings)
    line = df.assign(loss=np.exp(2 - 0.1 * np.log(df["N"]) - slope * np.log(df["X"]) + noise))
    assert not any("E0 is no line" in text for text in rlkit.fit(line, "tan", y="loss", bootstrap=0).warnings)


def test_residual_resamples_and_bands_know_the_weights():
    x, w = np.geomspace(1e3, 1e6, 20), np.where(np.arange(20) % 2 == 0, 100.0, 1.0)
    widths = {200: [], 0: []}
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 0.2 / np.sqrt(w))
        df = pd.DataFrame({"x": x, "w": w, "y": 2 * x**-0.3 * np.exp(noise)})
        for count, found in widths.items():
            fit = rlkit.fit(df, "power", y="y", weights="w", bootstrap=count)
            found.append(np.diff(fit.interval()["alpha"])[0])
    assert np.median(widths[200]) == pytest.approx(np.median(widths[0]), rel=0.2)
    for method in (0, 200):
        fit = rlkit.fit(df, "power", y="y", weights="w", bootstrap=method)
        band = np.log(fit.predict(pd.DataFrame({"x": [3e4, 3e4], "w": [1.0, 100.0]}), band="prediction"))
        assert 6 < (band["high"] - band["low"]).iloc[0] / (band["high"] - band["low"]).iloc[1] < 10


def test_the_band_of_a_mean_is_narrower_and_a_robust_fit_through_its_points_keeps_its_width():
    fit = rlkit.fit(study(), "power", y="error", x="N")
    one, four = (fit.predict({"N": [5e4]}, band="prediction", repeats=k).iloc[0] for k in (1, 4))
    assert (four["high"] - four["low"]) < 0.75 * (one["high"] - one["low"])
    df = pd.DataFrame({"N": [0.6e9, 1.7e9, 4e9, 8e9, 14e9], "error": [0.317, 0.196, 0.115, 0.102, 0.074]})
    width = {}
    for loss in ("huber", "ls"):
        low, high = rlkit.fit(df, "power", y="error", x="N", loss=loss, bootstrap=0).interval()["alpha"]
        width[loss] = high - low
    assert width["huber"] > width["ls"] / 3


def test_standard_errors_know_clusters():
    rng, runs = np.random.default_rng(5), np.repeat(np.arange(8), 10)
    x = np.tile(np.geomspace(10, 1000, 10), 8)  # offsets of runs move A and not alpha
    y = 2 * x**-0.3 * np.exp(rng.normal(0, 0.3, 8)[runs] + rng.normal(0, 0.02, 80))
    df = pd.DataFrame({"x": x, "y": y, "run": runs})
    plain, clustered = (rlkit.fit(df, "power", y="y", cluster=c, bootstrap=0) for c in (None, "run"))
    assert clustered.stderr["alpha"] < 0.5 * plain.stderr["alpha"]
    assert any("clusters are named, and profiles count rows" in text for text in clustered.warnings)


def test_repeated_data_without_decay_are_worth_as_much_as_new_ones():
    columns = {"N": np.array([1e9]), "D": np.array([1e11]), "U": np.array([1e10])}
    values = np.array([[1.69, 406.4, 0.34, 410.7, 0.28, R, 1e18] for R in (1e6, 1e12, 1e16, 1e18)])
    chinchilla = laws["chinchilla"](columns, values[:1, :5])
    found = laws["data_constrained"](columns, values)
    np.testing.assert_allclose(found[1:], chinchilla.repeat(3, axis=0), rtol=1e-9)


def test_a_pass_rate_law_stays_between_0_and_1():
    rng, N = np.random.default_rng(0), np.repeat(np.geomspace(1e4, 1e8, 7), 3)
    n = 400
    truth = 1 / (1 + np.exp(6 - 0.5 * np.log(N)))
    df = pd.DataFrame({"N": N, "rate": rng.binomial(n, truth) / n, "n": n, "seed": [0, 1, 2] * 7})
    fit = rlkit.fit(df, "logit_linear", y="rate", x="N")
    assert fit.interval()["b"][0] < 0.5 < fit.interval()["b"][1]
    band = fit.predict({"N": [1e2, 1e14]}, band="prediction")
    assert band["low"].min() > -0.1 and band["high"].max() < 1.1
    assert fit.params["a"] == pytest.approx(-6, rel=0.1)


def samples(seed: int, seed_sd: float = 0.15) -> pd.DataFrame:
    """Samples of 3 seeds of 5 sizes on 80 problems, with logit pass = -6 + 0.5·ln N + seed + problem."""
    rng, parts = np.random.default_rng(seed), []
    hard = rng.normal(0, 1.0, 80)
    for N, run in itertools.product(np.geomspace(1e4, 1e8, 5), range(3)):
        logit = -6 + 0.5 * np.log(N) + rng.normal(0, seed_sd) + hard
        right = rng.random((80, 2)) < expit(logit)[:, None]
        parts.append(answers(right, run=f"{N:g}-{run}", cell=f"{N:g}", step=5, N=N))
    return pd.concat(parts, ignore_index=True)


def test_pass_rates_have_intervals_over_seeds_and_problems():
    fit = fit_pass_rates(samples(0), "logit_linear", x="N", bootstrap=300)
    points = samples(0).groupby(["run", "N"])["correct"].mean().rename("rate").reset_index()
    plain = rlkit.fit(points, "logit_linear", y="rate", x="N")
    widths = [np.diff(one.interval()["a"])[0] for one in (fit, plain)]
    assert widths[0] > 0.9 * widths[1]
    assert fit.notes == ("The intervals are over 5 cells' seeds and 80 problems.",)
    assert fit_pass_rates(samples(0), "logit_linear", x="N", bootstrap=0).notes == ()
    first = samples(0).query("run.str.endswith('-0')", engine="python")
    alone = fit_pass_rates(first, "logit_linear", x="N", y="error")
    assert any("5 of 5 cells have one seed" in text for text in alone.warnings)
    with pytest.raises(UserError, match="No sample of these runs was graded"):
        fit_pass_rates(samples(0).assign(correct=None), "logit_linear", x="N")


def along_training(seed: int = 0) -> pd.DataFrame:
    """Samples of 3 seeds of two recipes on 150 problems at 5 steps, with error 0.9·step^-alpha of 0.05 and 0.3."""
    rng, parts = np.random.default_rng(seed), []
    hard = rng.uniform(size=150)
    for cell, alpha in (("slow", 0.05), ("fast", 0.3)):
        for run, shift in enumerate(rng.normal(0, 0.02, 3)):
            for step in (0, 10, 20, 40, 80, 160):
                error = 0.9 * max(step, 1) ** -alpha + shift
                right = hard + rng.normal(0, 0.1, 150) > error
                parts.append(answers(right[:, None], run=f"{cell}-{run}", cell=cell, step=step))
    return pd.concat(parts, ignore_index=True)


def test_pass_rates_along_training_have_a_law_for_each_group():
    options = {"x": "step", "y": "error", "along": True, "bootstrap": 300}
    fits = fit_pass_rates(along_training(), "power", group="cell", **options)
    assert list(fits) == ["fast", "slow"] and {len(one.table) for one in fits.values()} == {15}
    ends = {cell: one.interval()["alpha"] for cell, one in fits.items()}
    assert ends["slow"][1] < ends["fast"][0] and ends["fast"][0] < 0.3 < ends["fast"][1]
    assert all(one.resampled.freedom == 4 for one in fits.values())  # of the six runs of two cells
    alone = fit_pass_rates(along_training().query("run == 'fast-0'"), "power", **options)
    assert alone.resampled.freedom == 149 and any("have one seed" in text for text in alone.warnings)
    late = along_training().query("run != 'slow-1' or step != 20")
    with pytest.raises(UserError, match="different steps"):
        fit_pass_rates(late, "power", group="cell", **options)


def test_draws_are_at_their_optimum_where_the_estimate_is_at_a_bound():
    x, rng = np.repeat([10.0, 20, 40, 80, 160], 3), np.random.default_rng(0)
    y, *values = 0.9 * x**-0.05 * np.exp(0.02 * rng.standard_normal((21, 15)))
    fit = rlkit.fit(pd.DataFrame({"x": x, "y": y}), "saturating_power", y="y", bootstrap=0)
    given = with_draws(fit, np.array(values), 20, 15, ()).given
    assert fit.at_bound == {"E": 0} and given is not None
    for params, seen in zip(given.values, values, strict=True):

        def residuals(p, seen=seen):
            return np.log((p[0] + p[1] * x ** -p[2]) / seen)

        starts = ([0.01, 0.9, 0.05], [0.5, 0.4, 0.2], [0.7, 0.5, 1], [0.75, 2, 2])
        best = min(least_squares(residuals, s, bounds=(0, np.inf), x_scale=0.1).cost for s in starts)
        assert (residuals(params) ** 2).sum() / 2 <= best * (1 + 1e-4)


@pytest.mark.parametrize(("best", "inside"), [(0.6, True), (1.5, False)])
def test_the_best_share_has_an_interval_or_is_at_its_bound(best, inside):
    rng, share = np.random.default_rng(1), np.repeat([0.1, 0.25, 0.5, 0.75, 0.9], 3)
    error = 0.5 + 0.3 * (share - best) ** 2 + rng.normal(0, 0.01, 15)
    fit = rlkit.fit(pd.DataFrame({"share": share, "error": error}), "best_share", x="share", y="error")
    low, high = fit.interval()["s_best"]
    assert (low < best < high < 0.9) == inside
    assert inside != any("s_best at a bound" in text for text in fit.warnings)
    assert not any("decades" in text for text in fit.warnings)


def test_a_term_that_vanishes_beside_the_others_takes_none_of_them_along():
    """N^-4 of large models is below the last digit of the other terms, whose size its bound is measured in."""
    N, D = (column.ravel() for column in np.meshgrid(np.geomspace(3e5, 1e8, 6), np.geomspace(20, 500, 8)))
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"N": N, "D": D, "y": 0.7 * D**-0.1 * (N / 1e7) ** 0.02 * np.exp(rng.normal(0, 0.01, 48))})
    fit = rlkit.fit(df, laws["chinchilla"].pin(alpha=4.0), y="y", bootstrap=0)
    assert set(fit.at_bound) == {"A"} and fit.params["B"] > 0.1
    np.testing.assert_allclose(fit.predict(df), df["y"], rtol=0.15)
    assert "R²" in fit.summary()
    sound = rlkit.fit(planted("chinchilla", 60, 0.01), "chinchilla", y="y", bootstrap=0)
    vanished = replace(sound, z=sound.law.to_z(np.array([0.7, 1e6, 3400.0, 1.2, 0.1])))  # N^-3400 is 0
    told = "The prediction at the optimum does not depend on A, alpha: neither value nor interval says anything."
    assert told in vanished.warnings and not any("does not depend" in text for text in sound.warnings)
