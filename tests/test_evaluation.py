"""pass@k against exact arithmetic, intervals against their definition, rows and their summary."""

import math
from fractions import Fraction
from math import comb

import numpy as np
import pandas as pd
import pytest
import torch
from cases import table
from scipy.stats import binomtest, norm

import rlkit
from rlkit.config import Model, RunConfig
from rlkit.data import held_out
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.evaluation import Average, bootstrap_mean, pass_at_k, pass_rate, summarise
from rlkit.laws import fit_coverage
from rlkit.measures import summary
from rlkit.models import loading
from rlkit.models.loading import Policy, load_policy
from rlkit.training.export import evaluate
from rlkit.types import Task


def exact(n, c, k):
    return float(1 - Fraction(comb(n - c, k), comb(n, k)))


CASES = [(10, 3, 5), (10_000, 1, 100), (10_000, 122, 1000), (5, 5, 3), (4, 1, 1)]
KNOWN = {(10, 3, 1): 0.3, (200, 1, 1): 0.005, (4, 1, 4): 1.0, (5, 0, 3): 0.0}  # to the last bit


@pytest.mark.parametrize("case", [*CASES, *KNOWN])
def test_pass_at_k_is_the_exact_fraction(case):
    assert pass_at_k(*case) == pytest.approx(exact(*case), abs=5e-12)
    assert case not in KNOWN or pass_at_k(*case) == KNOWN[case]


def test_arrays_broadcast_and_average_over_problems_afterwards():
    n, c = np.array([10, 10, 20]), np.array([0, 3, 20])
    table = pass_at_k(n[:, None], c[:, None], np.array([1, 5]))
    np.testing.assert_allclose(table, [[exact(a, b, k) for k in (1, 5)] for a, b in zip(n, c, strict=True)])
    pooled = pass_at_k(40, 23, 5)
    assert table[:, 1].mean() < pooled - 0.2  # the counts of all problems fed as one would overstate it


@pytest.mark.parametrize(*table("evaluation_undefined"))
def test_what_is_not_defined_is_refused(case, message):
    with pytest.raises(UserError, match=message):
        pass_at_k(*case)


def test_the_bootstrap_obeys_its_generator_and_no_other():
    x, found = np.random.default_rng(0).random(50), []
    for seed in (1, 1, 2):
        np.random.seed(len(found))
        found.append(bootstrap_mean(x, rng=np.random.default_rng(seed)))
    assert found[0] == found[1] != found[2]


def test_prompts_and_not_samples_are_resampled():
    rng = np.random.default_rng(0)
    rate = rng.random(60)
    values = (rng.random((60, 16)) < np.round(rate)[:, None]).astype(float)  # samples of a prompt are alike
    prompts = np.repeat(np.arange(60), 16)
    found = bootstrap_mean(values.ravel(), prompts, rng=np.random.default_rng(0))
    by_prompt = values.mean(axis=1)
    se = by_prompt.std() / np.sqrt(60)
    assert found.value == pytest.approx(values.mean())
    assert found.prompts == 60
    assert found.high - found.low == pytest.approx(2 * norm.ppf(0.975) * se, rel=0.06)


def test_macro_and_micro_averages_differ_where_prompts_have_different_numbers_of_samples():
    shares: dict[Average, float] = {"macro": 0.5, "micro": 6 / 7}
    for average, share in shares.items():
        rng = np.random.default_rng(0)
        found = bootstrap_mean([1] * 6 + [0], ["a"] * 6 + ["b"], rng=rng, average=average)
        assert found.value == pytest.approx(share)


@pytest.mark.parametrize("problems", [3, 200])
def test_no_success_and_no_failure_are_no_certainty(problems):
    names, one = np.repeat(np.arange(problems), 2), binomtest(0, problems).proportion_ci(0.95, "exact").high
    value, low, high, _ = pass_rate(np.zeros(2 * problems), names)
    assert (value, low) == (0, 0) and high == pytest.approx(one)
    value, low, high, _ = pass_rate(np.ones(2 * problems), names)
    assert (value, high) == (1, 1) and low == pytest.approx(1 - one)


def test_missing_outcomes_are_not_zeros():
    with pytest.raises(UserError, match="1 of 3 values are missing"):
        bootstrap_mean([1.0, np.nan, 0.0], rng=np.random.default_rng(0))


def problems(seed=0, count=300, n=500):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"n": n, "c": rng.binomial(n, rng.beta(0.3, 8.0, count))})


def test_the_coverage_exponent_is_the_regression_and_its_interval_that_of_the_problems():
    df, ks = problems(), [1, 2, 5, 10, 20, 50, 100, 200]
    fit = fit_coverage(df, ks=ks, bootstrap=400)
    values = pass_at_k(df["n"].to_numpy()[:, None], df["c"].to_numpy()[:, None], np.array(ks))
    slope, level = np.polyfit(np.log(ks), np.log(-np.log(values.mean(axis=0))), 1)
    assert fit.params["b"] == pytest.approx(-slope, rel=1e-7)
    assert fit.params["a"] == pytest.approx(np.exp(level), rel=1e-7)
    rng, slopes = np.random.default_rng(1), []
    for _ in range(400):
        mean = values[rng.integers(300, size=300)].mean(axis=0)
        slopes.append(-np.polyfit(np.log(ks), np.log(-np.log(mean)), 1)[0])
    assert fit.stderr["b"] == pytest.approx(np.std(slopes), rel=0.15)
    table = pd.DataFrame({"k": ks, "p": values.mean(axis=0)})
    naive = rlkit.fit(table, "coverage", y="p", loss="ls").interval()["b"]
    low, high = fit.interval()["b"]
    assert low < fit.params["b"] < high and naive[0] < fit.params["b"] < naive[1]
    with pytest.raises(UserError, match="strictly between 0 and 1"):
        fit_coverage(pd.DataFrame({"n": [10] * 5, "c": [10] * 5}))


def test_intervals_of_shares_grow_with_the_share():
    for problems, samples in ((20, 1), (200, 1), (50, 4)):
        ends = []
        for right in range(problems * samples + 1):
            correct = np.zeros(problems * samples)
            correct[:right] = 1
            ends.append(pass_rate(correct, np.tile(np.arange(problems), samples))[1:3])
        lows, highs = np.array(ends).T
        if samples == 1:
            assert (np.diff(lows) >= 0).all() and (np.diff(highs) >= 0).all()
        assert (highs > lows).all() and (highs >= highs[0] - 1e-9).all() and (lows <= lows[-1] + 1e-9).all()


def test_intervals_of_shares_cover():
    rng = np.random.default_rng(0)
    for rate, problems in ((0.02, 100), (0.5, 20), (0.95, 60)):
        inside = []
        for _ in range(300):
            _, low, high, _ = pass_rate((rng.random(problems) < rate).astype(float))
            inside.append(low <= rate <= high)
        assert np.mean(inside) >= 0.93


def row(task, correct, source="a", error=None):
    told = {"task_id": task, "data_source": source, "correct": correct, "error": error}
    return {**told, "tokens": 3, "finish_reason": "stop"}


def test_pass_at_k_is_estimated_a_task_and_then_averaged_in_all_and_in_each_domain():
    rows = [row("x", c) for c in (True, False, False, False)] + [row("y", True, "b")] * 4
    metrics = summarise(rows, (1, 2)).metrics
    assert metrics["eval/pass@1"] == pytest.approx((0.25 + 1) / 2)
    assert metrics["eval/pass@2"] == pytest.approx((0.5 + 1) / 2)  # 1 - C(3,2)/C(4,2) = 0.5
    assert metrics["eval/pass@1/a"] == 0.25 and metrics["eval/pass@1/b"] == 1


def test_failed_graders_are_in_no_rate_and_counted():
    rows = [row("x", True), row("x", None, error="killed"), row("y", False), row("y", False)]
    result = summarise(rows, (1, 2))
    assert result.metrics["eval/pass@1"] == pytest.approx(0.5)
    assert result.metrics["eval/pass@2"] == 0.0  # task x has one graded sample: it is in no pass@2
    assert result.metrics["eval/error_rate"] == 0.25
    nothing = summarise([row("x", None, error="killed")], (1,))
    assert math.isnan(nothing.metrics["eval/pass@1"]) and nothing.pass_at_1 is None


def test_the_interval_counts_tasks_not_samples():
    rows = [row(str(k), k % 2 == 0) for k in range(20) for _ in range(50)]
    interval = summarise(rows, (1,)).pass_at_1
    assert interval is not None
    value, low, high, prompts = interval
    assert (value, prompts) == (0.5, 20)
    assert 0.25 < low < 0.35 and 0.65 < high < 0.75  # ±1.96·sqrt(.25/20) = ±.22, not ±.03


def test_a_run_and_the_table_of_its_study_give_one_interval_in_any_order_of_samples():
    rng = np.random.default_rng(3)
    rows = [row(f"t{k}", bool(rng.random() < 0.3)) for k in rng.permutation(80) for _ in range(2)]
    rows.append(row("t5", None, error="killed"))
    stored = summarise(rows, (1,)).pass_at_1
    shape = {"run": "r", "cell": "c", "step": 0, "parameters_non_embedding": 30_000}
    evals = pd.DataFrame(rows).sort_values("task_id").assign(**shape)
    for found in (summary.before_after(evals), summary.pass_rates(evals, ["cell"])):
        assert tuple(found.loc[0, ["pass@1", "low", "high", "tasks"]]) == stored


@pytest.mark.parametrize(*table("evaluation_impossible"))
def test_impossible_requests_are_refused(tmp_path, changes, message):
    (tmp_path / "config.json").write_text("[")
    asked = {"model": "ladder-30k", "tasks": [Task.ask("math__arithmetic", "1+1=", "2")], "n": 4} | changes
    asked["model"] = str(tmp_path) if asked["model"] == "MODEL" else asked["model"]
    with pytest.raises(UserError, match=message):
        evaluate(**asked)


def test_template_variables_are_passed_and_leave_the_callers_model_as_it_was(monkeypatch):
    policy = load_policy(Model(path="ladder-10k"))
    policy.tokenizer.chat_template = "{{ messages[0].content }}{% if brief %} In a word.{% endif %}"
    asked, encode = [], Policy.encode_all

    def watched(self, chats):
        asked.extend(map(self.decode, encode(self, chats)))
        return encode(self, chats)

    monkeypatch.setattr(Policy, "encode_all", watched)
    tasks = [sources.parse("arithmetic").task(1)]
    for variables, end in (({"brief": True}, True), ({}, False)):
        evaluate(policy, tasks, n=1, max_tokens=2, apply_chat_template_kwargs=variables)
        assert asked.pop().endswith(" In a word.") is end and not asked
    with pytest.raises(UserError, match="'a b' is no name of a template's variable"):
        evaluate(policy, tasks, n=1, apply_chat_template_kwargs={"a b": 1})


@pytest.mark.parametrize("where", ["", "checkpoints/step_000001/model"])
def test_a_path_is_evaluated_on_the_gpu_in_the_precision_of_its_run(tmp_path, monkeypatch, where):
    c = RunConfig.model_validate({
        "model": {"path": "ladder-10k", "dtype": "bfloat16", "warm_start": {"kind": "none"}},
        "data": {"train_batch_size": 2}, "rollout": {"n": 2}, "evaluation": {"size": 4, "n": 1},
        "trainer": {"total_training_steps": 1},
    })  # fmt: skip
    folder = rlkit.train(c, root=tmp_path, progress=False).folder / where
    asked, seen, load = [], [], loading.load_policy

    def watched(section, **options):
        asked.append(options.pop("device"))
        seen.append(load(section, **options))
        return seen[-1]

    monkeypatch.setattr("rlkit.training.export.load_policy", watched)
    monkeypatch.setattr("rlkit.training.export.device_of", lambda config: "cuda")
    tasks = held_out(c)[:2]
    result = evaluate(folder, tasks, n=2, max_tokens=4)
    assert len(result.rows) == 4 and {r["task_id"] for r in result.rows} == {t.id for t in tasks}
    assert all(r["error"] is None and r["correct"] in (True, False) for r in result.rows)
    assert asked == ["cuda"] and seen[0].dtype == torch.bfloat16
