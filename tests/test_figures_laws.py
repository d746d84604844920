"""The analysis figures draw what their tables say."""

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import table
from laws_data import curve
from metric_rows import metrics

import rlkit
from rlkit import figures
from rlkit.errors import UserError
from rlkit.figures import laws as drawings
from rlkit.figures import looks, runs
from rlkit.figures.drawing import cautions
from rlkit.measures import fits
from rlkit.measures.summary import first_at

FALLING = pd.DataFrame({"x": [1e4, 1e5, 1e6, 1e7], "y": [0.9, 0.7, 0.5, 0.42]})


@rlkit.law(
    "plane", linear=tuple("abc"), bounds=dict.fromkeys("abc", (-np.inf, np.inf)), returns="logit", space="linear"
)
def plane(N, X, *, a, b, c):
    """logit y = a + b·ln N + c·ln X"""
    return a + b * np.log(N) + c * np.log(X)


def test_a_plateau_is_reached_where_it_begins_and_transfer_is_the_change_in_each_domain():
    steps, curve = np.array([0.0, 10, 20, 30, 40]), np.array([0.1, 0.1, 0.3, 0.2, 0.3])
    found = [first_at(steps, curve, level) for level in (0.05, 0.1, 0.2, 0.3)]
    assert found == pytest.approx([0, 0, 15, 20]) and np.isnan(first_at(steps, curve, 0.4))
    rows = pd.concat([trained(cell, {"math": 0.15, "code": 0.05})[1] for cell in ("a", "b")])
    table = runs.transfer(rows).table.set_index(["cell", "data_source"])["change of pass@1"]
    chosen = rows.query("cell == 'b' and data_source == 'math'").groupby("step")["correct"].mean()
    assert table["b", "math"] == pytest.approx(chosen[80] - chosen[0]) and len(table) == 4


def test_the_law_along_training_is_a_sigmoid_of_every_cell_that_is_not_held_out():
    steps, rng, rates = np.arange(12), np.random.default_rng(0), {}
    for model, seed in itertools.product(("small", "medium", "large"), (0, 1)):
        rise = steps**1.5 / (steps**1.5 + (4 if model == "small" else 2) ** 1.5)
        rates[model, seed] = 0.1 + (0.8 - 0.1) * rise + rng.normal(0, 0.004, 12)
    df = metrics(rates, steps, {"small": 1e9, "medium": 1.1e9, "large": 1.2e9})
    df = df.assign(held_out=df["cell"] == "large")
    found, curves = fits.along(df)
    assert list(found) == ["small", "medium"]  # the largest is held out
    low, high = found["small"].interval()["C_mid"]
    assert low < 4e9 < high and found["small"].params["C_mid"] == pytest.approx(4e9, rel=0.2)
    drawing = figures.law(found, curves, by="cell", venue="icml")
    assert set(drawing.table["group"]) == {"small", "medium"}
    assert {run["cell"] for run in drawing.sources["runs"]} == set(drawing.sources["law"]) == set(found)
    assert "The intervals rest on 2 clusters" in cautions(drawing.sources)  # runs are resampled whole
    assert drawing.caption.startswith("The law: R = ")
    assert fits.foretold(found, curves).empty
    early, curves = fits.along(df, after=8)
    assert len(early["small"].table.y) == 2 * 8 and early["small"].params["A"] == pytest.approx(0.8, abs=0.05)
    points = figures.law(early, curves, by="cell").table.query("part == 'point' and group == 'small'")
    assert points["held_out"].sum() == 2 * 3 and len(points) == 2 * 11
    row: Any = fits.foretold(early, curves).set_index("cell").loc["small"]
    assert row["runs"] == 2 and row["low"] < row["observed"] < row["high"]
    with pytest.raises(UserError, match="needs 5 evaluations after the start, and a run has 3: set a lower"):
        fits.along(df[df["step"] < 4])


def test_an_optional_part_says_why_it_is_left_out(capsys):
    with drawings.optional("Comparison"):
        raise UserError("Nothing is held out.")
    assert capsys.readouterr().out == "Comparison: left out. Nothing is held out.\n"
    with pytest.raises(ZeroDivisionError), drawings.optional("Comparison"):
        _ = 1 / 0


def test_any_law_is_drawn_with_its_held_out_points():
    df = pd.DataFrame([(N, D) for N in (1e8, 1e9, 1e10) for D in (1e9, 1e10, 1e11)], columns=["N", "D"])
    logit = -9 + 0.25 * np.log(df["N"]) + 0.15 * np.log(df["D"]) + np.random.default_rng(0).normal(0, 0.05, 9)
    df = df.assign(r=1 / (1 + np.exp(-logit)), held_out=df["N"] > 5e9)
    drawing = figures.law(rlkit.fit(df, "plane", y="r", x={"N": "N", "X": "D"}, bootstrap=0), df)
    drawn = drawing.table
    assert set(drawn.loc[drawn["part"] == "law", "N"]) == {1e8, 1e9, 1e10}  # the held-out size has its curve
    legend = drawing.figure.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert sum("held out" in label for label in labels) == 1
    both = pd.concat([curve(n, 0).assign(size=n) for n in ("well", "good")], ignore_index=True)
    groups = figures.law(rlkit.fit(both, "sigmoid", y="rate", group="size", bootstrap=0))
    colours = {line.get_color() for line in groups.figure.axes[0].lines}
    assert len(colours) == 2 and set(groups.table["group"]) == {"well", "good"}
    with pytest.raises(UserError, match="drawn one by one"):
        groups = pd.concat([df.assign(held_out=False, g=g) for g in "ab"], ignore_index=True)
        figures.law(rlkit.fit(groups, "plane", y="r", x={"N": "N", "X": "D"}, group="g", bootstrap=0))


@pytest.mark.parametrize(*table("figures_formula_that_begins_a_laws"))
def test_the_formula_that_begins_a_laws_docstring_stands_in_its_figure(docstring, begins):
    def mine(x, *, A, alpha):
        return A * x**-alpha

    mine.__doc__ = docstring
    fit = rlkit.fit(FALLING, rlkit.law("my_own")(mine), y="y", x="x", bootstrap=0)
    [text] = figures.law(fit, FALLING).figure.axes[0].texts
    assert text.get_text().splitlines()[0] == begins


def test_residuals_stand_over_what_the_law_predicts_and_estimates_beside_its_curve():
    fit = rlkit.fit(FALLING, "power", y="y", x="x", bootstrap=0)
    (text,) = drawings.law(fit).figure.axes[0].texts
    assert max(text.get_position()) < 0.1  # where a falling curve leaves room
    rising = rlkit.fit(FALLING.assign(y=[0.1, 0.2, 0.6, 0.5]), "logit_linear", y="y", x="x", bootstrap=0)
    (text,) = drawings.law(rising).figure.axes[0].texts
    assert text.get_position()[1] > 0.9  # though its last point is not its highest
    drawn = drawings.residuals(fit).table
    assert np.asarray(np.log(FALLING["y"] / drawn["predicted"])) == pytest.approx(drawn["residual"].to_numpy())


def test_a_size_has_one_colour_and_what_else_a_law_is_of_has_markers():
    N, D = np.repeat([3e4, 1e5, 2e5], 8), np.tile(np.geomspace(1e2, 1e4, 8), 3)
    table = pd.DataFrame({"parameters_non_embedding": N, "D": D, "U": np.minimum(D, 1e3)})
    table["error"] = (0.3 + 3 * N**-0.2 + 2 * D**-0.5) * np.random.default_rng(0).normal(1, 0.01, 24)
    table["held_out"] = table["parameters_non_embedding"] == 2e5
    x = {"N": "parameters_non_embedding", "X": "D"}
    fit = rlkit.fit(table, "plane", x=x, y="error")
    (ax,) = figures.law(fit, table).figure.axes
    sizes, legend = list(looks(table, "parameters_non_embedding").values()), ax.get_legend()
    assert legend is not None
    assert [text.get_color() for text in legend.get_texts()] == [one["color"] for one in sizes]
    lines = [line for line in ax.lines if line.get_linestyle() != "None"]
    assert [(line.get_color(), line.get_linestyle()) for line in lines] == [(one["color"], "-") for one in sizes]
    fit = rlkit.fit(table, "data_constrained", x={"N": x["N"]}, y="error")
    drawing = figures.law(fit, table)  # of more lines than sizes, a panel a size
    figure, combinations = drawing.figure, table[["parameters_non_embedding", "U"]].drop_duplicates()
    assert [ax.get_title() for ax in figure.axes] == ["30k", "100k", "200k"]
    curves = [(ax, line) for ax in figure.axes for line in ax.lines if np.size(line.get_xdata()) == 100]
    assert len(curves) == len(combinations) == 15
    assert [line.get_color() for _, line in curves] == [one["color"] for one in sizes for _ in range(5)]
    (key,) = figure.legends
    named = [str(text.get_text()) for text in key.get_texts()]
    assert named == list(map(figures.short, sorted(set(table["U"]))))
    marks = [handle.get_linestyle() for handle in key.get_lines()]
    assert [line.get_linestyle() for _, line in curves] == marks * 3
    assert len({str(handle.get_marker()) for handle in key.get_lines()}) == 5
    points = drawing.table.query("part == 'point'")
    assert sum(np.size(line.get_xdata()) for ax in figure.axes for line in ax.lines) == 15 * 100 + len(points)


def trained(cell: str, rates: dict[str, float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What two runs of a cell log, and their samples: success in each domain rises from 0.2 by its rate, or is 0."""
    rng, rows, logged = np.random.default_rng(0), [], []
    for seed, step in itertools.product((0, 1), (0, 10, 20, 40, 80)):
        run = {"run": f"{cell}{seed}", "cell": cell, "seed": seed, "model.path": "m", "step": step}
        run |= {"parameters_non_embedding": 1e4, "held_out": False, "data.train_max_samples": 1}
        run |= {"variant": cell, "variant_place": -ord(cell[0])}  # the last name is the first of the file
        of_all = {**run, "data.train_batch_size": 1, "data_source": "all"}
        logged.append({**of_all, "metric": "training/environment_steps", "value": 30.0 * step})
        for source, rate in rates.items():
            passed = rng.random(200) < (0.2 + rate * np.log1p(step) / 2) * (rate > 0)
            logged.append({**run, "data_source": source, "metric": "eval/pass@1", "value": passed.mean()})
            asked = [{"task_id": f"{source}{i}", "correct": bool(right)} for i, right in enumerate(passed)]
            rows += [{**run, "data_source": source, **task} for task in asked]
        logged.append({**of_all, "metric": "eval/pass@1", "value": passed.mean()})
    return pd.DataFrame(logged), pd.DataFrame(rows)


@pytest.mark.parametrize("fitted", [["a", "c"], ["c"]])
def test_a_cell_that_cannot_be_fitted_is_named_and_the_others_are_drawn_in_their_colours(fitted):
    parts = [trained(cell, {"s": 0.15 * (cell in fitted)}) for cell in ("a", "b", "c")]
    df, samples = (pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True))
    with pytest.warns(UserWarning, match="left out of the laws: b: "):
        found, curves = fits.by_cell(df, samples)
    assert list(found) == fitted and all(one.params["alpha"] > 0 for one in found.values())
    drawing = figures.law(found, curves, by="cell")
    assert set(drawing.table["group"]) == set(fitted)
    drawn = {str(line.get_label()): line.get_color() for line in drawing.figure.axes[0].lines}
    expected = {cell: looks(df, "cell")[cell]["color"] for cell in fitted}
    assert {name: colour for name, colour in drawn.items() if not name.startswith("_")} == expected
    assert list(drawings.estimates(found, "alpha")) == ["cell", "alpha", "low", "high"]
    with pytest.raises(UserError, match="^a: "):
        fits.by_cell(df, samples.assign(correct=False))
    with warnings.catch_warnings():  # a cell that is held out is no cell that cannot be fitted
        warnings.simplefilter("error")
        assert list(fits.by_cell(df, samples.assign(held_out=samples["cell"] != "c"))[0]) == ["c"]


def test_laws_of_a_study_are_fitted_to_its_samples_and_say_what_is_left_out():
    df, samples = trained("one", {"a__b": 0.15, "hard": 0.0})
    success = fits.environment_steps(df, samples[samples["data_source"] == "a__b"])
    assert success.params["b"] > 0 and set(success.table.columns["x"]) == {300.0, 600.0, 1200.0, 2400.0}
    with pytest.warns(UserWarning, match="left out of the laws: hard: y"):
        ((found, rates),) = fits.by_domain(df, samples).values()
    assert list(found) == ["a: b"] and found["a: b"]["one"].params["alpha"] > 0
    drawing = drawings.of_domains(found, rates)
    assert set(drawing.table["group"]) == {"a: b"}
    with pytest.raises(UserError, match="No run of the study trained in an environment"):
        fits.environment_steps(df[df["value"] <= 1], samples)
    with pytest.raises(UserError, match=r"needs 3 values of data\.sft_ratio, and the study has 0"):
        fits.best_share(df, samples)
