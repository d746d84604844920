"""Intervals: what they cover, when they are open, and the warnings in words."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from cases import cases, records
from laws_data import CHINCHILLA, CURVES, curve, planted, scattered
from scipy import stats

import rlkit
from rlkit.errors import UserError
from rlkit.laws import laws
from rlkit.laws.intervals import draw_weights
from rlkit.seeds import generator

SIGMOID = ("R0", "A", "C_mid", "B")


def coverage(intervals, truth):
    """Share of intervals that hold the truth, by parameter."""
    assert len(intervals) >= 20
    return {p: np.mean([i[p][0] <= t <= i[p][1] for i in intervals]) for p, t in truth.items()}


def test_the_bootstrap_obeys_its_seed_and_no_other():
    df = scattered(n=60)
    np.random.seed(1)
    one = rlkit.fit(df, "chinchilla", y="loss", bootstrap=40, seed=1)
    np.random.seed(2)
    same = rlkit.fit(df, "chinchilla", y="loss", bootstrap=40, seed=1)
    other = rlkit.fit(df, "chinchilla", y="loss", bootstrap=40, seed=2)
    np.testing.assert_array_equal(one.resampled.values, same.resampled.values)
    assert not np.allclose(one.resampled.values, other.resampled.values)


def test_every_resample_is_as_good_as_a_fit_of_its_own_rows():
    df = scattered(n=80)
    fit = rlkit.fit(df, "chinchilla", y="loss", bootstrap=30, seed=5, resample="case", loss="huber")
    weights = draw_weights(fit.table, 30, generator("laws", "bootstrap", 5))
    for b in (0, 7, 29):
        rows = df.loc[df.index.repeat(weights[b].astype(int))].assign(copy=lambda d: np.arange(len(d)))
        own = rlkit.fit(rows.reset_index(drop=True), "chinchilla", y="loss", loss="huber")
        np.testing.assert_allclose(fit.resampled.values[b], list(own.params.values()), rtol=2e-3)


def test_cluster_bootstrap_errors_match_cluster_robust_ones_and_exceed_plain_ones():
    rng = np.random.default_rng(0)
    df = planted("power", 600, noise=0.01)
    df["run"] = np.arange(600) // 10
    slope = rng.normal(0, 0.01, 60)[df["run"]]
    df["y"] *= np.exp(slope * (np.log(df["x"]) - 10))
    clustered = rlkit.fit(df, "power", y="y", loss="ls", bootstrap=1500, cluster="run")
    plain = rlkit.fit(df, "power", y="y", loss="ls", bootstrap=1500, resample="case")
    ols = sm.OLS(np.log(df["y"]), sm.add_constant(np.log(df["x"])))
    robust = ols.fit(cov_type="cluster", cov_kwds={"groups": df["run"]})
    assert clustered.stderr["alpha"] == pytest.approx(robust.bse["x"], rel=0.12)
    assert clustered.stderr["alpha"] > 1.3 * plain.stderr["alpha"]


def test_robust_profiles_agree_with_the_bootstrap():
    options = {"y": "loss", "delta": 1e-2, "resample": "case"}
    ends = [rlkit.fit(scattered(), "chinchilla", **options, bootstrap=k).interval() for k in (0, 400)]
    for profile, bootstrap in zip(*(e.values() for e in ends), strict=True):
        assert 0.6 < np.log(profile[1] / profile[0]) / np.log(bootstrap[1] / bootstrap[0]) < 1.7


def test_a_profile_ends_where_the_minimum_over_the_other_parameters_is_at_the_f_threshold():
    df = scattered(n=100)
    fit = rlkit.fit(df, "chinchilla", y="loss", loss="ls", bootstrap=0)
    for end in fit.interval()["E"]:
        held = rlkit.fit(df, laws["chinchilla"].pin(E=end), y="loss", loss="ls")
        assert held.objective / fit.objective - 1 == pytest.approx(stats.t.ppf(0.975, 95) ** 2 / 95, rel=1e-3)


def test_an_asymptote_that_the_data_do_not_reach_has_an_open_or_wide_interval_and_says_so():
    df = curve("hardly", 1)
    df = df[df["C"] < 2500].reset_index(drop=True)  # C_max/C_mid below 0.5
    fit = rlkit.fit(df, "sigmoid", y="rate", bootstrap=0)
    assert fit.interval()["A"][1] > 0.99
    assert fit.interval()["C_mid"][1] > 3 * df["C"].max()
    assert any("not identified" in w for w in fit.warnings)
    well = rlkit.fit(curve("well", 0), "sigmoid", y="rate", loss="ls")
    assert not any("not identified" in w for w in well.warnings)
    assert well.interval()["A"][1] - well.interval()["A"][0] < 0.03
    with pytest.raises(UserError, match="level is 95"):
        well.interval(95)
    with pytest.raises(UserError, match="band is 'predicted': use 'confidence' or 'prediction'"):
        well.predict({"C": [1e3]}, band="predicted")


@pytest.mark.parametrize(("bend", "least", "most"), [(0.0, 0.0, 0.1), (0.1, 0.95, 1.0)])
def test_residuals_that_curve_are_warned_of_and_those_of_a_power_law_are_not(bend, least, most):
    sizes = np.repeat([1e4, 3e4, 6e4, 1e5], 2)
    straight, arc = 2 - 0.2 * np.log(sizes), bend * np.log(sizes / 3e4) ** 2
    found = []
    for seed in range(60):
        noise = 0.03 * np.random.default_rng(seed).standard_normal(len(sizes))
        df = pd.DataFrame({"N": sizes, "error": np.exp(straight - arc + noise)})
        fit = rlkit.fit(df, "power", y="error", x="N", loss="ls")
        found.append(any(w.startswith("Residuals curve along N") for w in fit.warnings))
    assert least <= np.mean(found) <= most


def test_small_designs_are_warned_of_in_words():
    rng = np.random.default_rng(0)
    N = np.repeat([3e4, 1e5, 3e5, 1e6], 2)
    df = pd.DataFrame({"N": N, "error": (0.1 + 5 * N**-0.25) * np.exp(0.02 * rng.standard_normal(8))})
    df = df.assign(seed=[0, 1] * 4, run=range(8))
    fit = rlkit.fit(df, "saturating_power", y="error", x="N", bootstrap=200, cluster="run", holdout=df["N"] > 5e5)
    text = " ".join(fit.warnings)
    assert "Only 1.0 decades of N:" in text
    assert "rest on 6 clusters" in text
    tiny = rlkit.fit(df.iloc[:4], "power", y="error", x="N")
    assert "Only 4 points" in " ".join(tiny.warnings) and "Only 2 values of N:" in " ".join(tiny.warnings)
    fit = rlkit.fit(df.assign(status=["running", "failed", *["finished"] * 6]), "power", y="error", x="N")
    said = "2 of 8 rows are of runs that have not finished: their last evaluation stands for their end."
    assert said in fit.warnings and not any("have not finished" in text for text in tiny.warnings)


def test_the_variance_that_is_left_out_is_named():
    df = curve("well", 0, runs=3)
    options = {"y": "rate", "loss": "ls"}

    def said(table, **more):
        return " ".join(w for w in rlkit.fit(table, "sigmoid", **options, **more).warnings if "variance" in w)

    out = "The intervals leave out run-to-run variance"
    assert said(df).startswith(f"{out}: 120 rows of 3 runs count as independent")
    assert said(df.drop(columns="run")).startswith(f"{out} where several rows come from one run")
    assert said(df, cluster="run", bootstrap=20) == ""
    assert said(df.assign(run=range(120))) == ""  # each row is a run of its own
    assert said(df.assign(seed=7), cluster="run", bootstrap=20).startswith(f"{out}: there is one seed only")


def test_few_clusters_widen_the_interval_and_autocorrelation_is_estimated():
    fit = rlkit.fit(curve("well", 0, runs=3), "sigmoid", y="rate", bootstrap=300, cluster="run")
    raw, (low, high) = np.quantile(fit.resampled.values[:, 1], [0.025, 0.975]), fit.interval()["A"]
    assert (high - low) > 2 * (raw[1] - raw[0])  # t with 2 degrees of freedom
    runs = [curve("well", 3, rho=rho) for rho in (0.0, 0.8)]
    found = [rlkit.fit(df, "sigmoid", y="rate", bootstrap=2, block="C").resampled.rho for df in runs]
    assert found[0] < 0.3 < 0.5 < found[1]


def test_what_is_resampled_depends_on_the_loss_and_what_is_named():
    df = curve("well", 0, runs=3)
    for options, loss, delta, kind in cases("laws_resampled"):
        fit = rlkit.fit(df, "sigmoid", y="rate", bootstrap=9, **options)
        assert (fit.resampled.kind, fit.loss.name, fit.loss.delta) == (kind, loss, delta)
    assert len(rlkit.fit(planted("power", 20, 0.01), "power", y="y").resampled.values) == 1000
    with pytest.raises(UserError, match="resample is 'rows'"):
        rlkit.fit(df, "sigmoid", y="rate", bootstrap=9, resample="rows")


SIZES, TAN = (1e4, 3e4, 6e4, 1.1e5), np.array([[0.3, 1e5, 1.5, -0.18]])  # k_max, N0, e0, e1
FORETOLD = pd.DataFrame({"N": [1e4, 1.1e5, 3.2e5, 3.2e5], "X": [12, 120, 12, 120]})


def curves_of_runs(rng: np.random.Generator, off: tuple[float, ...]) -> pd.DataFrame:
    """Two runs a size whose level and slope differ by run; the sizes are `off` the law by so much in ln error."""
    rows = pd.DataFrame([(i, s, x) for i in range(4) for s in (0, 1) for x in range(12, 121, 12)])
    rows.columns = ["size", "seed", "X"]
    rows["N"], rows["run"] = np.array(SIZES)[rows["size"]], rows["size"] * 2 + rows["seed"]
    level, slope = rng.normal(0, [[0.02], [0.01]], (2, 8))[:, rows["run"]]
    noise = level + slope * (np.log(rows["X"]) - 3.8) + rng.normal(0, 0.015, len(rows))
    columns = {c: rows[c].to_numpy(float) for c in ("N", "X")}
    return rows.assign(y=np.exp(laws["tan"](columns, TAN)[0] + noise + np.array(off)[rows["size"]]))


def bands(off: tuple[float, ...], copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(copies, 4) predictions and the ends of their confidence bands, in ln error."""
    rng, found = np.random.default_rng(0), []
    for seed in range(copies):
        options = {"cluster": "run", "bootstrap": 100, "seed": seed}
        fit = rlkit.fit(curves_of_runs(rng, off), "tan", y="y", **options)
        found.append(np.log(fit.predict(FORETOLD, band="confidence")))
    return tuple(np.moveaxis(np.array(found), 2, 0))


def test_the_band_of_a_size_that_no_run_has_covers_and_holds_its_line_where_sizes_are_off_the_law():
    _, low, high = bands((0, 0, 0, 0), 60)
    truth = laws["tan"]({c: FORETOLD[c].to_numpy(float) for c in FORETOLD}, TAN)[0]
    assert (((low <= truth) & (truth <= high)).mean(axis=0) >= 0.83).all()
    assert (np.median(high - low, axis=0) < [0.12, 0.12, 0.3, 0.6]).all()
    middle, low, high = bands((-0.1, 0.1, 0.1, -0.1), 10)
    place = np.median((middle - low) / (high - low), axis=0)
    assert (np.abs(place - 0.5) < 0.15).all()


def test_prediction_bands_are_wider_than_confidence_bands_and_hold_new_points():
    train, new = scattered(0, 200), scattered(1, 300)
    for bootstrap in (0, 200):
        fit = rlkit.fit(train, "chinchilla", y="loss", bootstrap=bootstrap)
        narrow, wide = (fit.predict(new, band=b) for b in ("confidence", "prediction"))
        assert ((wide["high"] - wide["low"]) > (narrow["high"] - narrow["low"])).mean() > 0.95
        inside = ((new["loss"] > wide["low"]) & (new["loss"] < wide["high"])).mean()
        assert 0.9 < inside <= 1.0


def test_plain_intervals_of_correlated_runs_miss_and_cluster_ones_do_not():
    plain, clustered = [], []
    for seed in range(60):
        df = curve("good", 9000 + seed, runs=8, rho=0.6, offset=0.004)
        plain.append(rlkit.fit(df, "sigmoid", y="rate", bootstrap=0).interval())
        options = {"cluster": "run", "bootstrap": 100, "seed": seed}
        clustered.append(rlkit.fit(df, "sigmoid", y="rate", loss="ls", **options).interval())
    assert coverage(plain, truth_of("good"))["A"] < 0.85
    assert coverage(clustered, truth_of("good"))["A"] >= 0.88  # 0.94 in 100 copies


def truth_of(name: str) -> dict[str, float]:
    return dict(zip(SIGMOID, CURVES[name][:4], strict=True))


COVERED = [
    *(("chinchilla", CHINCHILLA, lambda seed: scattered(50_000 + seed, 160), (0.91, 0.985),
       {"y": "loss", "delta": delta, "bootstrap": 300, "resample": "case"}) for delta in (1e-3, 1e-2)),
    *(("sigmoid", truth_of(name), lambda seed, name=name: curve(name, 60_000 + seed), (0.91, 0.995),
       {"y": "rate", "bootstrap": 0}) for name in ("well", "good")),
    *(("sigmoid", truth_of(name), lambda seed, name=name, rho=rho: curve(name, 70_000 + seed, rho=rho), (0.9, 1),
       {"y": "rate", "block": "C", "bootstrap": 200}) for name in CURVES for rho in (0.0, 0.6, 0.8)),
]  # fmt: skip


@pytest.mark.slow(reason="200 simulated studies a design take minutes")
@pytest.mark.parametrize(("law", "truth", "data", "share", "options"), COVERED)
def test_intervals_cover(law, truth, data, share, options):
    found = [rlkit.fit(data(seed), law, **options, seed=seed).interval() for seed in range(200)]
    shares = coverage(found, truth)
    assert share[0] <= min(shares.values()) and max(shares.values()) <= share[1], shares


def test_resamples_leave_a_bound_that_the_estimate_is_at():
    rng = np.random.default_rng(3)
    N = np.repeat([3e4, 6e4, 1e5, 3e5], 2)
    fits, options = [], {"y": "y", "x": "N", "loss": "ls"}
    for _ in range(12):
        y = 2 * N**-0.187 * np.exp(0.05 * rng.standard_normal(8))
        df = pd.DataFrame({"N": N, "y": y, "run": range(8)})
        fits.append([rlkit.fit(df, "saturating_power", **options, bootstrap=count) for count in (200, 0)])
    bounded = [pair for pair in fits if pair[0].at_bound]
    assert 3 <= len(bounded) < 12
    assert all("E is at its bound 0" in " ".join(fit.warnings) for fit, _ in bounded)
    for fit, profiled in bounded:
        low, high = fit.interval()["E"]
        assert fit.params["E"] == 0 and low == 0
        assert 0.01 < high < 0.4  # not the zero width of resamples that cannot leave the bound
        assert 0.1 < np.mean(fit.resampled.values[:, 0] > 1e-3) < 0.9
        assert profiled.interval()["E"][0] == 0 and 0.01 < profiled.interval()["E"][1] < 0.6


@pytest.mark.parametrize("rounding", range(5))
def test_a_design_that_cannot_determine_a_law_is_refused_whatever_the_rounding(rounding):
    df = pd.DataFrame(records("laws_undetermined"))  # A and alpha could run away together
    df["error"] *= 1 + 1e-13 * rounding * np.random.default_rng(rounding).standard_normal(len(df))
    for table in (df, df.replace({"N": {10432: 1e4, 33120: 3e4}})):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            told = "not determine the 5 parameters of 'chinchilla': with 2 of N, 3 of D, only 4"
            with pytest.raises(UserError, match=told):
                rlkit.fit(table, "chinchilla", y="error")


def test_a_bootstrap_that_leaves_the_range_of_floats_says_so_in_words_alone():
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"N": np.repeat([1e4, 3e4, 1e5], 4), "D": np.tile([64, 256, 1024, 4096], 3)})
    df["error"] = rng.uniform(0.7, 0.99, 12)  # no law: terms vanish and exponents run away
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = rlkit.fit(df, "chinchilla", y="error", bootstrap=20)
        assert any("resamples have" in text for text in fit.warnings)
        assert len(fit.resampled.values) == 20
