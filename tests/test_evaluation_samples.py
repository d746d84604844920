"""Evaluation rows and their summary."""

import math

import numpy as np
import pandas as pd
import pytest

from rlkit.config import RunConfig
from rlkit.data import held_out
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.evaluation.samples import summarise
from rlkit.measures import summary
from rlkit.models import loading
from rlkit.models.loading import Policy, load_policy
from rlkit.training.export import evaluate
from rlkit.types import Task


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
    for table in (summary.before_after(evals), summary.pass_rates(evals, ["cell"])):
        assert tuple(table.loc[0, ["pass@1", "low", "high", "tasks"]]) == stored


def test_impossible_requests_are_refused():
    with pytest.raises(UserError, match="no tasks"):
        evaluate("ladder-30k", [])
    with pytest.raises(UserError, match="pass@8 needs"):
        evaluate("ladder-30k", [Task.ask("math__arithmetic", "1+1=", "2")], n=4, pass_at=(8,))


def test_template_variables_are_passed_and_leave_the_callers_model_as_it_was(monkeypatch):
    policy = load_policy(RunConfig().model.model_copy(update={"path": "ladder-10k"}))
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
    import torch

    import rlkit

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
