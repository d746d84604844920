"""The panels without a browser: controls, differences, files, runs beside each other, law explorer, samples."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from study_folder import config, write_run, write_study

import rlkit
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.figures import look
from rlkit.panels.ablation import Ablation, Panel, comparison, controls, samples_of
from rlkit.panels.explorers import Browser, Explorer, page, read_samples
from rlkit.results import store

# --- Controls -----------------------------------------------------------------------------------------


def kind(widget: Any) -> str:
    return type(widget).__name__


def test_controls_come_from_the_schema():
    made = controls(config())
    lr, n = made["actor.optim.lr"], made["rollout.n"]
    assert kind(lr) == "FloatLogSlider"
    assert (lr.value, lr.min, lr.max) == (1e-4, pytest.approx(-6), pytest.approx(-2))
    assert (kind(n), n.min, n.tooltip) == ("IntSlider", 1, "Samples a prompt (G).")
    assert made["model.lora_rank"].min == 0
    assert kind(made["actor.use_kl_loss"]) == "Checkbox"
    assert kind(made["model.path"]) == "Combobox"  # any folder or hub id
    for key, name in (("algorithm.adv_estimator", "rloo"), ("actor.policy_loss.loss_mode", "cispo")):
        assert kind(made[key]) == "Dropdown" and name in made[key].options


def test_any_key_can_be_a_control():
    keys = ["model.dtype", "algorithm.gamma", "data.order", "actor.clip_ratio_high", "actor.optim.betas"]
    dtype, gamma, order, unset = controls(config(), keys[:4]).values()
    assert dtype.options == ("float32", "bfloat16", "float16") and kind(order) == "Dropdown"
    assert (gamma.min, gamma.max) == (pytest.approx(0), pytest.approx(1))  # the schema's own bounds
    assert (kind(unset), unset.value) == ("Text", "")
    panel = Panel(Ablation(config()), keys)
    panel.widgets["actor.clip_ratio_high"].value = "0.3"
    panel.widgets["actor.optim.betas"].value = "[0.8, 0.9]"
    changed = panel.ablation.config.actor
    assert changed.clip_ratio_high == 0.3 and tuple(changed.optim.betas) == (0.8, 0.9)
    panel.widgets["actor.clip_ratio_high"].value = "[0."
    assert panel.launch.disabled and "Malformed YAML" in panel.changed.value


def test_every_control_accepts_its_range_a_source_has_its_weight_and_a_key_that_is_none_is_one_sentence():
    for key, widget in controls(config()).items():
        log = kind(widget) == "FloatLogSlider"
        ends = [getattr(widget, end) for end in ("min", "max") if hasattr(widget, end)]
        for value in (*(10**end if log else end for end in ends), *getattr(widget, "options", ())):
            if (key, value) != ("rollout.n", 1):  # GRPO compares samples of one prompt
                ablation = Ablation(config())
                ablation.changes = {key: value}
                assert isinstance(ablation.config, RunConfig)
    # A mixture has a weight for each source.
    both = config(data={"train": [{"kind": "arithmetic", "weight": 2}, {"kind": "string_trace"}]})
    weights = {key: made.value for key, made in controls(both).items() if key.endswith("weight")}
    assert weights == {"data.train.0.weight": 2, "data.train.1.weight": 1}
    bad = {"actor.optim.lrr": "Did you mean 'actor.optim.lr'", "actor.optim": "is no single value"}
    for key, message in bad.items():
        with pytest.raises(UserError, match=message):
            controls(config(), [key])


# --- An ablation --------------------------------------------------------------------------------------


def test_differences_leave_out_the_seed_and_a_saved_params_file_is_the_same_run(tmp_path):
    ablation = Ablation(config())
    ablation.changes = {"actor.optim.lr": 1e-3, "seed": 5, "rollout.n": 16}
    assert ablation.differences() == {"actor.optim.lr": (1e-4, 1e-3), "rollout.n": (8, 16)}
    acted = {"kind": "environment", "environment": {"kind": "mathematics", "instructions": "brief"}}
    mixture = {"train": [{"kind": "arithmetic", "weight": 2, "second_digits": 1}, acted]}
    held_out = {"size": 40, "sources": [{"kind": "string_trace"}]}
    ablation = Ablation(config(data=mixture, evaluation=held_out))
    ablation.changes = {"actor.optim.lr": 1e-3, "data.train.1.weight": 0.5}
    path = ablation.save(tmp_path / "lr.yaml")
    assert rlkit.load(path).id == ablation.config.id
    assert path.read_text().startswith("# sizes with ")
    assert ablation.save(path) == path  # the same content again
    ablation.changes = {}
    with pytest.raises(UserError, match="holds something else"):
        ablation.save(path)
    with pytest.raises(UserError, match="study is 'my study'"):
        ablation.save(tmp_path / "my study.yaml")
    assert [file.name for file in tmp_path.iterdir()] == ["lr.yaml"]


# --- Runs beside each other ---------------------------------------------------------------------------


@pytest.fixture
def ablation(tmp_path):
    """A base with two seeds and, from the panel, one run at another learning rate."""
    for seed in (0, 1):
        write_run(tmp_path, config(seed=seed), 10_000)
    found = Ablation(config(), tmp_path)
    found.changes = {"actor.optim.lr": 1e-3}
    write_run(tmp_path, found.config, 300_000)
    return found


def test_runs_are_grouped_by_what_differs_and_those_like_the_controls_come_first(ablation):
    found = [(label, len(runs)) for label, runs in ablation.beside().items()]
    assert found == [("optim.lr = 0.001", 1), ("base", 2)]
    for key in ("critic.optim.lr", "actor.optim.lr"):  # told apart, whatever their short names
        ablation.changes = {key: 2e-3}
        write_run(ablation.root, ablation.config, 300_000)
    labels = ["actor.optim.lr = 0.002", "base", "optim.lr = 0.001", "critic.optim.lr = 0.002"]
    assert list(ablation.beside()) == labels
    ablation.changes = {}
    assert next(iter(ablation.beside())) == "base"
    write_study(ablation.root)  # more runs of the same study
    assert {"base", "model = ladder-30k", "model = ladder-300k"} <= set(ablation.beside())


def test_the_table_has_intervals_and_paired_differences(ablation):
    beside = ablation.beside()
    metrics, evals = samples_of(beside)
    assert set(metrics["cell"]) == set(beside)
    table = comparison(beside, evals).set_index("cell")
    assert table.loc["base", "seeds"] == "0, 1" and table.loc["base", "against base"] == ""
    last = evals[evals["step"] == 20].assign(correct=lambda d: d["correct"].astype(float))
    high = last["run"] == ablation.config.id
    row: Any = table.loc["optim.lr = 0.001"]
    assert row["pass@1"] == pytest.approx(last.loc[high, "correct"].mean())
    assert row["low"] < row["pass@1"] < row["high"]
    difference, low, upper = (float(part.strip("[],")) for part in row["against base"].split())
    expected = last.loc[high, "correct"].mean() - last.loc[~high, "correct"].mean()
    assert difference == pytest.approx(expected, abs=1e-3) and low < difference < upper
    # One that has just started is shown without numbers.
    ablation.changes = {"rollout.n": 16}
    folder = ablation.root / ablation.study / "runs" / ablation.config.id
    folder.mkdir(parents=True)
    store.prepare(folder, ablation.config)
    beside = ablation.beside()
    metrics, evals = samples_of(beside)
    assert metrics["cell"].nunique() == 2
    row: Any = comparison(beside, evals).set_index("cell").loc["rollout.n = 16"]
    assert math.isnan(row["pass@1"])
    panel = Panel(ablation)
    assert panel.refresh() is False  # nothing is being trained, and all of it can be drawn


def test_the_panel_sets_changes_and_says_what_differs_and_costs_and_what_cannot_be_launched():
    panel = Panel(Ablation(config()))
    panel.widgets["actor.optim.lr"].value = 1e-3
    assert panel.ablation.changes == {"actor.optim.lr": 1e-3}
    assert "actor.optim.lr</code> 0.0001 → <b>0.001</b>" in panel.changed.value
    assert "FLOPs" in panel.cost.value
    assert panel.widgets["actor.optim.lr"].description.startswith("●")
    panel.widgets["rollout.n"].value = 1
    assert panel.launch.disabled and "use rollout.n" in panel.changed.value
    panel.reset.click()
    assert panel.ablation.changes == {} and not panel.launch.disabled
    for path in ("", "ladder-7x", "nowhere"):  # a model that is nothing here
        panel.widgets["model.path"].value = path
        assert panel.launch.disabled and "whose shape is not known here" in panel.changed.value
    panel.widgets["model.path"].value = "Qwen/Qwen9-1B"  # a hub id, which is looked up when it trains
    assert not panel.launch.disabled and "cost unknown" in panel.cost.value


def test_what_a_browser_rounds_is_no_change():
    panel = Panel(Ablation(config(actor={"optim": {"lr": 1.2345e-3}}, rollout={"temperature": 0.33})))
    for widget in panel.widgets.values():
        if kind(widget) in ("FloatSlider", "FloatLogSlider"):
            rounded = on_grid(widget)
            widget.value = widget.base**widget.max if hasattr(widget, "base") else widget.max
            widget.value = rounded
    assert panel.ablation.changes == {} and "nothing" in panel.changed.value


def on_grid(widget: Any) -> float:
    """The value of a slider as a browser sends it back: rounded to whole steps from the least value."""
    at = math.log10(widget.value) if hasattr(widget, "base") else widget.value
    rounded = widget.min + widget.step * round((at - widget.min) / widget.step)
    return widget.base**rounded if hasattr(widget, "base") else rounded


# --- The law explorer ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    N, D = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
    loss = 1.7 + 400 * N**-0.34 + 410 * D**-0.28 + rng.normal(0, 0.005, N.size)
    return rlkit.fit(pd.DataFrame({"N": N, "D": D, "loss": loss}), "chinchilla", y="loss", loss="ls")


def misfit(explorer: Explorer) -> list[float]:
    return [float(words.split()[-1]) for words in explorer.words().split(" at ")[:2]]


def test_moving_a_slider_moves_the_law_and_not_the_fit(fit):
    found = Explorer(fit)
    assert misfit(found)[0] == misfit(found)[1]
    lines = len(found.drawing().figure.axes[0].lines)
    found.sliders["E"].value *= 10**0.04
    assert misfit(found)[0] > 5 * misfit(found)[1]
    p, at = found.values, pd.DataFrame({"N": [1e8], "D": [1e8]})
    assert p["E"] == pytest.approx(fit.params["E"] * 10**0.04)
    expected = sum(p[k] * 1e8 ** -p[e] for k, e in (("A", "alpha"), ("B", "beta")))
    assert found.tried.predict(at)[0] == pytest.approx(p["E"] + expected)
    drawing = found.drawing()
    assert (drawing.table["tried"] > fit.predict(drawing.table)).all()
    assert len(drawing.figure.axes[0].lines) > lines  # the law that is tried, over the fit


def test_sliders_of_the_explorer_begin_and_are_reset_exactly_at_the_fit(fit):
    explorer = Explorer(fit)
    for name, slider in explorer.sliders.items():
        rounded = on_grid(slider)
        slider.value = slider.base**slider.max
        assert explorer.values[name] != fit.params[name]
        slider.value = rounded
        assert explorer.values[name] == fit.params[name]
        slider.value = slider.base**slider.min
    explorer.reset.click()
    assert explorer.values == fit.params


def test_a_study_is_explored_by_its_law(tmp_path):
    explorer = rlkit.law_explorer(write_study(tmp_path))
    assert explorer.fit.law.name == "power" and explorer.drawing().figure.axes


# --- The sample browser -------------------------------------------------------------------------------


def test_buttons_turn_the_pages_of_samples_which_are_filtered(tmp_path):
    browser: Browser = rlkit.sample_browser(write_study(tmp_path))
    assert len(browser.table) == len(browser.rows) == 8 * 3 * 160
    browser.filters["run"].value, browser.filters["step"].value = browser.table["run"].iloc[0], "20"
    assert browser.previous.disabled and not browser.next.disabled and browser.of.value == "page 1 of 8"
    browser.next.click()
    assert browser.of.value == "page 2 of 8" and not browser.previous.disabled
    browser.show(7)
    assert browser.next.disabled
    browser.previous.click()
    assert browser.number == 6
    browser.filters["outcome"].value = "wrong"
    assert browser.number == 0
    browser.filters["run"].value, browser.filters["data_source"].value = "any", "logic__doors"
    wrong = browser.rows
    assert len(wrong) and not wrong["correct"].astype(bool).any()
    assert set(wrong["data_source"]) == {"logic__doors"} and set(wrong["step"]) == {20}
    assert set(browser.filters["outcome"].options) == {"any", "correct", "wrong"}
    browser.filters["outcome"].value = "correct"
    shown = page(browser.rows).to_html()  # texts of a model are escaped
    assert "&lt;b&gt;4&lt;/b&gt;" in shown and "<b>4</b>" not in shown


def test_a_prompt_stands_once_with_what_is_expected_and_answers_are_coloured(tmp_path):
    folder = write_run(tmp_path, config(), 10_000)
    rows = [("2!", 1.0, True, None), ("3", 0.0, False, None), ("4", None, None, "no judge")]
    samples = pd.DataFrame(rows, columns=["response", "value", "correct", "error"])
    samples = samples.assign(task_id="t", data_source="m", prompt="<i>1+1", ground_truth="2", step=30)
    samples.assign(finish_reason="stop").to_json(folder / "samples.jsonl", orient="records", lines=True)
    table = read_samples(folder)
    training = table[table["kind"] == "training"]
    assert list(training["outcome"]) == ["correct", "wrong", "not graded"] and len(table) == 480 + 3
    shown = page(training).to_html()
    assert shown.count("&lt;i&gt;1+1") == 1 and ">2</td>" in shown
    assert all(look(place)["color"] in shown for place in (0, 1)) and "not graded: no judge" in shown
