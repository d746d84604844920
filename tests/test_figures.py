"""Figures: the same bytes for the same numbers, real text in the PDF, and the drawn table beside it."""

import itertools
import json
import re
import subprocess
import sys
from typing import Any

import metric_rows
import numpy as np
import pandas as pd
import pytest
from cases import table
from matplotlib.legend import Legend
from study_folder import write_study

import rlkit
from rlkit import figures
from rlkit.agents import ExpertAgent, RandomAgent, run_episodes
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.figures import episodes, runs
from rlkit.measures import summary

SIZES = {"small": 30_000, "medium": 100_000, "large": 1_000_000}
LAW: Any = {"x": "parameters_non_embedding", "y": "error"}


def metrics() -> pd.DataFrame:
    """Three sizes with two seeds, evaluated at steps 0, 10 and 20."""
    steps = np.array([0, 10, 20])
    both = itertools.product(SIZES.items(), (0, 1))
    curves = {(m, seed): 1 - 5 * size**-0.3 * (1 - 0.01 * steps) - 0.002 * seed for (m, size), seed in both}
    return metric_rows.metrics(curves, steps, SIZES).assign(held_out=lambda t: t["cell"] == "large")


def test_the_files_are_the_same_bytes_every_time(tmp_path):
    code = "import pandas, sys\nfrom rlkit import figures\ndf = pandas.read_pickle(sys.argv[1])\n"
    code += "figures.learning_curves(df, x='compute/total_flops').save(sys.argv[2])"
    metrics().to_pickle(tmp_path / "metrics")
    subprocess.run([sys.executable, "-c", code, tmp_path / "metrics", tmp_path / "a" / "f"], check=True)
    figures.learning_curves(metrics(), x="compute/total_flops").save(tmp_path / "b" / "f")
    for kind in ("pdf", "svg", "png", "csv", "json"):
        assert (tmp_path / "a" / f"f.{kind}").read_bytes() == (tmp_path / "b" / f"f.{kind}").read_bytes()


def test_the_csv_holds_what_was_drawn_and_a_thick_line_is_the_mean_over_seeds(tmp_path):
    drawing = figures.learning_curves(metrics(), x="compute/total_flops")
    drawn = pd.read_csv(drawing.save(tmp_path / "deep" / "a.b")[3])
    assert (tmp_path / "deep" / "a.b.csv").exists()
    wide = metrics().pivot_table("value", ["run", "step"], "metric").reset_index()
    merged = drawn.merge(wide, on=["run", "step"], suffixes=("", "_given"))
    assert len(merged) == len(drawn) == 18
    for name in ("eval/pass@1", "compute/total_flops"):
        np.testing.assert_allclose(merged[name], merged[f"{name}_given"])
    (ax,) = figures.learning_curves(metrics()).figure.axes
    line, df = next(line for line in ax.lines if line.get_label() == "ladder-small"), metrics()
    mean = df[(df["cell"] == "small") & (df["metric"] == "eval/pass@1")].groupby("step")["value"].mean()
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), mean.index)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), mean)


def test_a_law_is_drawn_with_its_band_and_the_held_out_points_hollow():
    points = summary.final(metrics())
    fit = rlkit.fit(points, "power", **LAW)
    drawing = figures.law(fit, points)
    ax: Any
    (ax,) = drawing.figure.axes
    assert ax.get_xscale() == "log"
    sizes = {round(float(line.get_xdata()[0])): line.get_markerfacecolor() for line in ax.lines
             if line.get_linestyle() == "None" and len(line.get_xdata()) and line.get_marker() != "*"}  # fmt: skip
    hollow = {size: face == "white" for size, face in sizes.items()}
    assert hollow == {30_000: False, 100_000: False, 1_000_000: True}
    (star,) = (line for line in ax.lines if line.get_marker() == "*")
    told = drawing.table[drawing.table["part"] == "foretold"]
    assert list(star.get_xdata()) == [1_000_000]
    assert star.get_ydata()[0] == pytest.approx(told["prediction"].item())
    assert told["low"].item() < told["prediction"].item() < told["high"].item()
    (text,) = (text.get_text() for text in ax.texts)
    assert "\n$A$ = " in text and f"$\\alpha$ = {fit.params['alpha']:.3g} [" in text
    law = drawing.table[drawing.table["part"] == "law"]
    beyond = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [min(line.get_xdata()) >= 100_000 for line in beyond] == [True]  # extrapolated from there on
    curve = fit.predict(law[["parameters_non_embedding"]])
    np.testing.assert_allclose(law["prediction"], curve)
    assert (law["low"] <= law["prediction"]).all() and (law["prediction"] <= law["high"]).all()
    assert law["parameters_non_embedding"].max() > 1_000_000  # reaches past the held-out size


def test_held_out_error_is_prediction_minus_observation_and_outside_its_interval_a_caution():
    points = summary.final(metrics())
    fit = rlkit.fit(points, "power", **LAW)
    missed = summary.held_out_error(fit, points)
    (row,) = missed.to_dict("records")
    observed = points.loc[points["cell"] == "large", "error"].mean()
    expected = fit.params["A"] * 1e6 ** -fit.params["alpha"]
    assert row["observed"] == pytest.approx(observed)
    assert row["error"] == pytest.approx(expected - observed)
    ends = (("high", 1.01), ("low", 0.99), ("prediction", 1))
    said = [summary.outside(missed.assign(observed=missed[end] * by).to_dict("records")) for end, by in ends]
    caution = "large lies outside the interval that the law foretold for it."
    assert said == [[caution], [caution], []]
    one = rlkit.fit(points.assign(status="finished"), "power", **LAW, loss="ls")
    assert not any("cells share" in text for text in one.warnings)  # but where it pools some, it says so
    two = points.assign(status="finished", cell=points["cell"] + ", " + points["seed"].astype(str))
    text = " ".join(rlkit.fit(two, "power", **LAW, loss="ls").warnings)
    assert "Up to 2 cells share one value of parameters_non_embedding" in text


def test_pass_at_k_names_its_cells_beside_what_dashes_mean():
    rows = [
        {"cell": cell, "model.path": cell, "parameters_non_embedding": size, "when": when, "k": k, "value": k / 9,
         "low": k / 10, "high": k / 8}
        for (cell, size), when, k in itertools.product(SIZES.items(), ("before", "after"), (1, 2, 4))
    ]  # fmt: skip
    (ax,) = runs.pass_at_k_ends(pd.DataFrame(rows)).figure.axes
    legends = [found for found in ax.get_children() if isinstance(found, Legend)]
    texts = {text.get_text() for legend in legends for text in legend.texts}
    assert texts == {*SIZES, "before training"}
    numbers = (1024.0, 0.0003, 64, 10_432, 1.5e6)  # as an axis has them, or short
    assert list(map(figures.short, numbers)) == ["1024", "0.0003", "64", "10.4k", "1.5M"]


def test_runs_that_the_study_no_longer_asks_for_and_metrics_that_were_not_logged_are_not_drawn():
    df = metrics()
    old = df[df["cell"] == "large"].assign(run=lambda t: "old-" + t["run"], cell=None, held_out=None)
    assert set(summary.final(pd.concat([df, old]))["run"]) == set(df["run"])
    with pytest.raises(UserError, match="None of these runs is one that the study's file asks for"):
        summary.final(old)
    with pytest.raises(UserError, match="'eval/pass@9' was not logged"):
        figures.learning_curves(metrics(), metric="eval/pass@9")


def test_before_and_after_pool_seeds_and_cluster_by_task():
    rng = np.random.default_rng(0)
    same = {"cell": "small", "held_out": False, "model.path": "small", "parameters_non_embedding": 30_000}
    rows = [
        {"run": f"r{seed}", "seed": seed, "step": step, "task_id": task, "correct": rng.random() < p} | same
        for seed in (0, 1) for step, p in ((0, 0.2), (20, 0.6)) for task in range(50) for _ in range(4)
    ]  # fmt: skip
    evals = pd.DataFrame(rows).astype({"correct": "boolean"})
    evals.loc[0, "correct"] = None
    table = summary.before_after(evals).set_index("when")
    counts = table[["samples", "ungraded", "tasks", "runs"]].to_dict("index")
    assert counts["before"] == {"samples": 399, "ungraded": 1, "tasks": 50, "runs": 2}
    after = evals[evals["step"] == 20]
    assert table.loc["after", "pass@1"] == pytest.approx(after.groupby("task_id")["correct"].mean().mean())
    assert (table["low"] < table["pass@1"]).all() and (table["pass@1"] < table["high"]).all()
    assert len(figures.before_after(table.reset_index()).figure.axes[0].collections) == 2
    both = pd.concat([evals.assign(cell=f"small, {unique}") for unique in (1024, 64, 256)])
    assert list(summary.before_after(both)["cell"][::2]) == ["small, 64", "small, 256", "small, 1024"]


@pytest.mark.parametrize(*table("figures_log_ticks"))
def test_values_can_be_read_from_a_logarithmic_axis_however_short(limits, labels):
    with figures.styled():
        _, (ax,) = figures.new_axes("acl", 1, 0.5)
        ax.set(yscale="log", ylim=limits)
        figures.label_axes(ax, "step", "loss")
    within = [label for label in ax.get_yticklabels() if limits[0] <= label.get_position()[1] <= limits[1]]
    assert [label.get_text() for label in within] == labels
    assert not any(label.get_text() for label in ax.get_yticklabels(minor=True))


def test_a_record_says_which_runs_were_made_with_changed_files(tmp_path):
    folder = write_study(tmp_path)
    runs = sorted(folder.glob("runs/*/run.json"))
    for path, dirty in zip(runs, itertools.cycle([True, False]), strict=False):
        info = json.loads(path.read_text()) | {"git": {"commit": "c0ffee", "dirty": dirty}}
        path.write_text(json.dumps(info))
    found = figures.sources(rlkit.read(folder))["runs"]
    assert [run.get("dirty") for run in found] == [True, None] * 4
    assert {run["commit"] for run in found} == {"c0ffee"}


def test_a_table_has_values_with_their_intervals_in_one_cell():
    frame = pd.DataFrame(
        {"cell": ["a<b", "c"], "difference": [0.0991, -0.25], "low": [0.08, -0.3], "high": [0.12, np.nan],
         "low_seeds": [np.nan, -0.4], "high_seeds": [np.nan, 0.1], "tokens": [1234.5, 0.0001], "runs": [2, 3000],
         "lowest": [1, 2]}
    )  # fmt: skip
    html = figures.table(frame).to_html()
    assert re.findall(r"<th[^>]*>(.*?)</th>", html) == ["cell", "difference", "tokens", "runs", "lowest", "seeds"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells[:6] == ["a&lt;b", "0.099 [0.080, 0.120]", "1,234", "2", "1", "–"]
    assert cells[6:] == ["c", "-0.250 [-0.300, –]", "1.00e-04", "3,000", "2", "-0.250 [-0.400, 0.100]"]
    shown = figures.table(frame, "tokens", "difference").to_html()
    assert "1,234" in shown and "1.00e-04" in shown and "runs" not in shown
    assert "1,234" in figures.table(pd.concat([frame, frame]), "tokens").to_html()  # with an index twice


ENV = Mathematics(families=("linear",))


@pytest.fixture(scope="module")
def groups():
    problems = ENV.problems("test", 5)
    agents = {"expert": ExpertAgent(), "random": RandomAgent()}
    return {name: run_episodes(agent, ENV, problems) for name, agent in agents.items()}


def test_pictures_of_episodes_keep_what_they_draw(groups):
    drawing = episodes.reward_by_step(groups)
    (ax,), table = drawing.figure.axes, drawing.table
    assert all(float(tick).is_integer() for tick in ax.get_xticks())
    sums = table.groupby("group")["reward"].sum()
    assert sums["expert"] == 8.5
    assert sums["random"] == pytest.approx(sum(e.total_reward for e in groups["random"]) / 5)  # the mean return
    drawing = episodes.transition_map(groups["expert"], list(ENV.actions))
    counts = drawing.table.set_index("action")
    assert counts.loc["start", "identify_operation"] == 5 and counts.loc["state_answer", "end"] == 5
    assert drawing._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="None of the 5 episodes has a valid action"):
        episodes.transition_map(groups["expert"], [])
    drawing = episodes.reward_distribution(groups)
    (ax,), table = drawing.figure.axes, drawing.table
    drawing.figure.draw_without_rendering()
    assert (legend := ax.get_legend()) and legend.get_window_extent().x0 >= ax.get_window_extent().x1
    assert table.groupby("group").size().to_dict() == {"expert": 5, "random": 5}
    assert set(table.loc[table["group"] == "expert", "return"]) == {8.5}


@pytest.mark.parametrize("draw", [episodes.reward_by_step, episodes.reward_distribution])
@pytest.mark.parametrize("groups", [{}, {"a": []}])
def test_nothing_to_draw_is_one_sentence(draw, groups):
    with pytest.raises(UserError, match="No group has an episode"):
        draw(groups)
