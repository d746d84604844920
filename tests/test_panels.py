"""The panels' logic, without a browser: controls, differences, files, comparison, law explorer, samples."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from study_folder import config, write_run, write_study

import rlkit
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.panels import ablation as ablations
from rlkit.panels import comparison
from rlkit.panels.ablation import Ablation
from rlkit.panels.aside import aside
from rlkit.panels.controls import controls
from rlkit.panels.launching import attach
from rlkit.panels.law import Exploration, Explorer
from rlkit.panels.live import Worker
from rlkit.panels.samples import ANY, Browser, Choice, Samples, page
from rlkit.panels.view import Panel
from rlkit.results.labels import in_words

ROOT = Path(__file__).parent.parent


# --- Controls -----------------------------------------------------------------------------------------


def test_controls_come_from_the_schema():
    made = {control.key: control for control in controls(config())}
    lr, n, share = made["actor.optim.lr"], made["rollout.n"], made["model.lora_rank"]
    assert (
        (lr.kind, lr.value) == ("log", 1e-4)
        and lr.low == pytest.approx(1e-6)
        and lr.high == pytest.approx(1e-2)
    )
    assert (n.kind, n.low) == ("integer", 1) and n.help == "Samples a prompt (G)."
    assert share.low == 0
    assert made["actor.use_kl_loss"].kind == "switch"
    assert made["model.path"].kind == "suggestion"  # any folder or hub id
    for key, name in (("algorithm.adv_estimator", "rloo"), ("actor.policy_loss.loss_mode", "cispo")):
        assert made[key].kind == "choice" and name in made[key].options
    assert [made[key].section for key in ("rollout.n", "seed")] == ["rollout", "run"]


@pytest.mark.parametrize(
    ("key", "kind", "options"),
    [
        ("model.dtype", "choice", ("float32", "bfloat16", "float16")),
        ("algorithm.gamma", "number", ()),
        ("data.order", "choice", None),
    ],
)
def test_any_key_can_be_a_control(key, kind, options):
    (control,) = controls(config(), [key])
    assert control.kind == kind and options in (control.options, None)
    if kind == "number":
        assert (control.low, control.high) == (0, 1)  # the schema's own bounds


def test_every_control_accepts_its_range():
    for control in controls(config()):
        for value in (control.low, control.high, *control.options):
            if value is not None:
                ablation = Ablation(config())
                whole = int(value) if control.kind == "integer" else value
                ablation.changes = {control.key: whole}
                if (control.key, whole) != ("rollout.n", 1):  # GRPO compares samples of one prompt
                    assert isinstance(ablation.config, RunConfig)


def test_a_mixture_has_a_weight_for_each_source():
    both = config(data={"train": [{"kind": "arithmetic", "weight": 2}, {"kind": "string_trace"}]})
    weights = [c for c in controls(both) if c.key.endswith("weight")]
    assert [(c.key, c.value) for c in weights] == [("data.train.0.weight", 2), ("data.train.1.weight", 1)]


@pytest.mark.parametrize(
    ("key", "message"), [("actor.optim.lrr", "Did you mean 'lr'"), ("actor.optim", "holds no single value")]
)
def test_a_key_that_is_none_is_one_sentence(key, message):
    with pytest.raises(UserError, match=message):
        controls(config(), [key])


# --- An ablation --------------------------------------------------------------------------------------


def test_differences_and_their_words():
    ablation = Ablation(config())
    ablation.changes = {"actor.optim.lr": 1e-3, "seed": 5, "rollout.n": 16}
    assert ablation.differences(ablation.config) == {"actor.optim.lr": (1e-4, 1e-3), "rollout.n": (8, 16)}
    assert in_words(ablation.differences(ablation.config)) == "optim.lr = 0.001, rollout.n = 16"
    assert in_words({}) == "base"


def test_an_impossible_value_is_one_sentence_and_nothing_starts(tmp_path):
    ablation = Ablation(config(), root=tmp_path)
    ablation.changes = {"rollout.n": 1}
    with pytest.raises(UserError, match="use rollout.n >= 2"):
        ablation.launch()
    assert list(tmp_path.iterdir()) == []


def test_a_saved_params_file_is_the_same_run(tmp_path):
    mixture = {"train": [{"kind": "arithmetic", "weight": 2, "second_digits": 1}, {"kind": "string_trace"}]}
    ablation = Ablation(config(data=mixture))
    ablation.changes = {"actor.optim.lr": 1e-3, "data.train.1.weight": 0.5}
    path = ablation.save(tmp_path / "lr.yaml")
    assert rlkit.load(path).id == ablation.config.id
    assert path.read_text().startswith("# sizes with ")
    assert ablation.save(path) == path  # the same content again
    ablation.changes = {}
    with pytest.raises(UserError, match="holds something else"):
        ablation.save(path)


def test_changes_become_a_variant_and_comments_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "quickstart.yaml"
    file.write_text((ROOT / "params" / "quickstart.yaml").read_text())
    ablation = Ablation(rlkit.load(file), file)
    ablation.changes = {"rollout.n": 16}
    assert "36 runs now (18 before)" in ablation.add_to_study("many")
    before, after = (ROOT / "params" / "quickstart.yaml").read_text(), file.read_text()
    assert [line for line in before.splitlines() if "#" in line and line not in after.splitlines()] == []
    assert "variants:\n  base: {}\n  many:\n    rollout.n: 16" in after
    with pytest.raises(UserError, match="has a variant 'many' already"):
        ablation.add_to_study("many")
    ablation.changes = {"model.path": "ladder-1m"}  # a key of the grid
    assert "42 runs now (36 before)" in ablation.add_to_study("unused")


def test_a_study_that_would_be_invalid_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "quickstart.yaml"
    file.write_text((ROOT / "params" / "quickstart.yaml").read_text())
    ablation = Ablation(rlkit.load(file), file)
    with pytest.raises(UserError, match="Nothing is changed"):
        ablation.add_to_study("x")
    from rlkit.panels.study_file import add_variant

    with pytest.raises(UserError, match=r"rollout\.n"):
        add_variant(file, "bad", {"rollout.n": 1})
    assert file.read_text() == (ROOT / "params" / "quickstart.yaml").read_text()


def test_a_free_gpu_is_the_one_with_least_memory_in_use(monkeypatch):
    lines = "0, 40537\n1, 4\n2, 1\n"
    monkeypatch.setattr(ablations.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=lines))
    assert ablations.free_gpu() == "2"
    assert ablations.free_gpu("0,1") == "1"
    with pytest.raises(UserError, match="Every GPU is in use"):
        ablations.free_gpu("0")


# --- Runs beside each other ---------------------------------------------------------------------------


@pytest.fixture
def ablation(tmp_path):
    """A base with two seeds and, from the panel, one run at another learning rate."""
    for seed in (0, 1):
        write_run(tmp_path, config(seed=seed), 10_000)
    found = Ablation(config(), root=tmp_path)
    found.changes = {"actor.optim.lr": 1e-3}
    write_run(tmp_path, found.config, 300_000)
    return found


def test_runs_are_grouped_by_what_differs(ablation):
    runs = comparison.entries(ablation)
    assert [(run.label, run.seed) for run in runs] == [("base", 0), ("base", 1), ("optim.lr = 0.001", 0)]


def test_the_table_has_intervals_and_paired_differences(ablation):
    table = comparison.table(comparison.entries(ablation), "base").set_index("configuration")
    assert table.loc["base", "seeds"] == "0, 1" and table.loc["base", "against base"] == ""
    evals = rlkit.read_evals(ablation.root)
    last = evals[evals["step"] == 20].assign(correct=lambda d: d["correct"].astype(float))
    high = last["run"] == ablation.config.id
    value, low, upper = numbers(table.loc["optim.lr = 0.001", "pass@1 last"])
    assert value == pytest.approx(last.loc[high, "correct"].mean(), abs=5e-4) and low < value < upper
    difference, low, upper = numbers(table.loc["optim.lr = 0.001", "against base"])
    expected = last.loc[high, "correct"].mean() - last.loc[~high, "correct"].mean()
    assert difference == pytest.approx(expected, abs=1e-3) and low < difference < upper


def numbers(text: Any) -> list[float]:
    return [float(part) for part in text.replace("[", "").replace("]", "").replace(",", "").split()]


def test_the_picture_holds_every_group_and_the_current_one_is_thick(ablation):
    write_study(ablation.root)  # more runs of the same study
    drawing = comparison.overlay(comparison.entries(ablation), "optim.lr = 0.001")
    widths = {line.get_label(): line.get_linewidth() for line in drawing.figure.axes[0].lines}
    assert widths["optim.lr = 0.001"] > 2 and widths["base"] <= 1
    assert {"model = ladder-30k", "model = ladder-300k"} <= set(widths)
    assert set(drawing.table["metric"]) == {"critic/score/mean"}  # evaluations of run.json: the trainer's


def test_a_run_that_has_just_started_is_shown_without_numbers(ablation):
    from rlkit.results import store

    ablation.changes = {"rollout.n": 16}
    folder = ablation.root / ablation.study / "runs" / ablation.config.id
    folder.mkdir(parents=True)
    store.prepare(folder, ablation.config)
    runs = comparison.entries(ablation)
    assert comparison.overlay(runs, "rollout.n = 16").table["label"].nunique() == 2
    table = comparison.table(runs, "rollout.n = 16").set_index("configuration")
    assert table.loc["rollout.n = 16", "pass@1 last"] == ""
    text = comparison.table_html(table.reset_index(), "rollout.n = 16")
    assert text.count("font-weight:bold") == len(table.columns) + 1


def test_the_panel_sets_changes_and_says_what_differs(ablation):
    panel = Panel(Ablation(config(), root=ablation.root))
    panel.widgets["actor.optim.lr"].value = 1e-3
    assert panel.ablation.changes == {"actor.optim.lr": 1e-3}
    assert "actor.optim.lr</code> 0.0001 → <b>0.001</b>" in panel.changed.value
    assert panel.widgets["actor.optim.lr"].description.startswith("●")
    panel.widgets["rollout.n"].value = 1
    assert panel.launch.disabled and "use rollout.n" in panel.changed.value
    panel.reset.click()
    assert panel.ablation.changes == {} and not panel.launch.disabled


def test_controls_stand_under_their_section_once(ablation):
    both = config(data={"train": [{"kind": "arithmetic", "weight": 2}, {"kind": "string_trace"}]})
    panel = Panel(Ablation(both, root=ablation.root))
    names = [child.value[3:-4] for child in panel.box.children if getattr(child, "value", "")[:3] == "<b>"]
    assert names == ["model", "algorithm", "actor", "rollout", "data", "trainer", "run"]


def test_drawing_never_holds_up_the_controls(monkeypatch):
    monkeypatch.setattr("rlkit.panels.live._REST", 0.01)
    drawn, slow = [], threading.Event()

    def draw() -> bool:
        drawn.append(time.monotonic())
        slow.wait(0.05)
        if len(drawn) == 1:
            raise OSError("a file that is being replaced")
        return False

    problems: list[Exception] = []
    worker = Worker(draw, problems.append, every=0.05, quiet=0.03)
    began = time.monotonic()
    worker.start()
    for _ in range(50):
        worker.wake()
        time.sleep(0.005)
    time.sleep(0.3)
    worker.stop()
    assert 2 <= len(drawn) < 20  # fifty changes, a few drawings
    assert drawn[0] - began >= 0.03  # the answer to a click goes first
    assert [str(problem) for problem in problems] == ["a file that is being replaced"]


def test_what_is_slow_is_done_in_a_process_aside(tmp_path, monkeypatch):
    other = aside(os.getpid)
    assert aside(os.getppid) == os.getpid() != other == aside(os.getpid)
    monkeypatch.chdir(tmp_path)
    assert aside(os.getcwd) == str(tmp_path)  # paths mean the same
    with pytest.raises(UserError, match="no run"):
        aside(attach, "none", tmp_path)
    os.kill(other, signal.SIGINT)  # the kernel's interrupt, which all of its group get
    assert aside(os.getpid) == other
    os.kill(other, signal.SIGKILL)
    assert aside(os.getpid) not in (os.getpid(), other)


def test_a_panel_is_shown_without_torch_in_its_kernel():
    code = """
import sys
from rlkit.panels.view import panel
shown = panel("params/ablations.yaml")
shown.widgets["rollout.n"].value = 4
shown.runs(), shown.differences()
assert not {"torch", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# --- The law explorer ---------------------------------------------------------------------------------


def exploration() -> Exploration:
    rng = np.random.default_rng(0)
    N, D = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
    loss = 1.7 + 400 * N**-0.34 + 410 * D**-0.28 + rng.normal(0, 0.005, N.size)
    table = pd.DataFrame({"N": N, "D": D, "loss": loss})
    fit = rlkit.fit(table, "chinchilla", y="loss", loss="ls")
    return Exploration(fit)


def test_moving_a_parameter_moves_the_law_and_not_the_fit():
    found = exploration()
    tried, fitted = found.misfit()
    assert tried == pytest.approx(fitted)
    found.values["E"] *= 1.1
    assert found.misfit()[0] > 5 * fitted and found.misfit()[1] == pytest.approx(fitted)
    expected = sum(found.values[k] * 1e8 ** -found.values[e] for k, e in (("A", "alpha"), ("B", "beta")))
    at = pd.DataFrame({"N": [1e8], "D": [1e8]})
    assert found.moved.predict(at)[0] == pytest.approx(found.values["E"] + expected)
    table = found.drawing().table
    assert (table["tried"] > table["prediction"]).all()


def test_the_explorer_shows_an_error_up_to_1():
    N = np.geomspace(1e4, 1e5, 6)
    table = pd.DataFrame({"N": N, "error": [1.0, 0.8, 0.95, 0.6, 0.7, 0.4]})
    fitted = rlkit.fit(table, "power", y="error", x="N", loss="ls", bootstrap=100, resample="residual")
    drawing = Exploration(fitted).drawing()  # type: ignore[arg-type]
    low, high = drawing.figure.axes[0].get_ylim()
    assert drawing.table["high"].max() > 1.02 and 0 < low < high <= 1.02


def test_sliders_of_the_explorer_begin_and_are_reset_exactly_at_the_fit():
    """A browser rounds what a slider is given to whole steps from its least value, and sends that back."""
    explorer = Explorer(exploration())
    fitted = explorer.exploration.fit.params
    for name, slider in explorer.sliders.items():
        at = math.log10(slider.value) if hasattr(slider, "base") else slider.value
        rounded = slider.min + slider.step * round((at - slider.min) / slider.step)
        slider.value = slider.max if not hasattr(slider, "base") else slider.base**slider.max
        assert explorer.exploration.values[name] != fitted[name]
        slider.value = slider.base**rounded if hasattr(slider, "base") else rounded
        assert explorer.exploration.values[name] == fitted[name]
        slider.value = slider.min if not hasattr(slider, "base") else slider.base**slider.min
    explorer.reset.click()
    assert explorer.exploration.values == fitted


def test_a_budget_has_its_best_size_and_data():
    found = exploration()
    best = found.optimum(1e20)
    assert best["N"] * best["D"] * 6 == pytest.approx(1e20, rel=1e-6)
    p = found.values
    G = (p["alpha"] * p["A"] / (p["beta"] * p["B"])) ** (
        1 / (p["alpha"] + p["beta"])
    )  # Hoffmann et al., eq. 4
    assert best["N"] == pytest.approx(G * (1e20 / 6) ** (p["beta"] / (p["alpha"] + p["beta"])), rel=1e-3)
    assert "With 1e+20 FLOPs the best is N = " in found.words(1e20)
    for name in found.fit.law.free:
        low, high = found.range_of(name)
        assert low < found.fit.params[name] < high


# --- The sample browser -------------------------------------------------------------------------------


def test_samples_are_filtered(tmp_path):
    samples = Samples(write_study(tmp_path))
    assert len(samples.table) == 8 * 3 * 160
    wrong = samples.select(Choice(outcome="wrong", domain="logic__doors", step="20"))
    assert len(wrong) and not wrong["correct"].astype(bool).any()
    assert set(wrong["data_source"]) == {"logic__doors"} and set(wrong["step"]) == {20}
    assert samples.values("finish_reason") == [ANY, "stop"]
    assert samples.select(Choice(outcome="not graded")).empty


def test_buttons_turn_the_pages(tmp_path):
    browser = Browser(Samples(write_study(tmp_path)))
    browser.show()
    last = browser.number.max
    assert browser.previous.disabled and not browser.next.disabled and browser.of.value == f"of {last}"
    browser.next.click()
    assert browser.number.value == 2 and not browser.previous.disabled
    browser.number.value = last
    assert browser.next.disabled
    browser.previous.click()
    assert browser.number.value == last - 1


def test_texts_of_a_model_are_escaped(tmp_path):
    samples = Samples(write_study(tmp_path))
    shown = page(samples.select(Choice(outcome="correct")))
    assert "&lt;b&gt;4&lt;/b&gt;" in shown and "<b>4</b>" not in shown


def test_tokens_are_coloured_by_probability_and_answers_by_reward():
    same = {"run": "r", "kind": "training", "step": 1, "task_id": "t", "data_source": "m", "prompt": "<i>1+1"}
    right = {"response": "2!", "value": 1.0, "correct": True, "pieces": ["2", "<!"], "logprobs": [-0.1, -9.0]}
    wrong = {"response": "3", "value": 0.0, "correct": False, "pieces": ["3"], "logprobs": [None]}
    rows = pd.DataFrame([{**same, **row, "error": None, "finish_reason": "stop"} for row in (right, wrong)])
    shown = page(rows)
    assert "p = 0.905' style='background:rgba(213,94,0,0.01)'>2<" in shown
    assert "rgba(213,94,0,0.80)'>&lt;!<" in shown and "&lt;i&gt;1+1" in shown
    assert shown.count("&lt;i&gt;1+1") == 1  # a prompt once, its responses below
    assert shown.index("unlikely token") < shown.index("1+1")  # what the shades mean
    assert "rgb(1,115,178)'>✓" in shown and "rgb(222,143,5)'>✗" in shown
    by_reward = page(rows, colour="reward")
    assert "rgba(1,115,178,0.40)" in by_reward and "rgba(222,143,5,0.40)" in by_reward
