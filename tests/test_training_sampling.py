"""What is sampled for a step: solved problems, responses of several steps at once, answers that are interrupted."""

import json

import numpy as np
import pytest
from tiny import config, metrics_of

import rlkit
from rlkit.data import TaskStream, held_out
from rlkit.environments.rollout import Limits
from rlkit.errors import RunStopped, UserError
from rlkit.models.loading import load_policy
from rlkit.rewards import Router
from rlkit.samplers.cache import FixedCache
from rlkit.samplers.rollouts import grade, sample
from rlkit.samplers.torch import TorchSampler
from rlkit.training.batches import collate
from rlkit.training.loop import rl_step
from rlkit.training.run import TrainingRun
from rlkit.training.sampling import Feed
from rlkit.types import Reward, Rollout

LAG = {"async_training__trigger_parameter_sync_step": 3, "algorithm__rollout_correction": 2.0}
LAG |= {"actor__entropy_coeff": 0.01}


def answered(task, right: bool) -> Rollout:
    ids = np.ones(1, np.int64)
    return Rollout(task, ids, ids, ids, np.zeros(1, np.float32), "stop", reward=Reward.of(right))


def feed(**dotted) -> Feed:
    c = config(data__train_max_samples=24, **dotted)
    return Feed(c, TaskStream(c, held_out(c)))


@pytest.mark.parametrize("fails", [False, True])
def test_the_tasks_of_the_next_step_are_made_while_a_gpu_decodes(tmp_path, monkeypatch, fails):
    made, making, c = [], TaskStream.making, config(data__max_response_length=24)

    def recorded(self, step):
        made.append(step)
        if fails and step == 2:
            raise UserError("no task is left")
        yield from making(self, step)

    monkeypatch.setattr(TaskStream, "making", recorded)
    monkeypatch.setattr(FixedCache, "every", 2)
    monkeypatch.setattr("rlkit.data.stream.FEW", 64)

    def first_step(fixed: bool) -> list[str]:
        with TrainingRun.open(c, tmp_path / str(fixed), progress=False) as run:
            assert isinstance(run.sampler, TorchSampler)
            run.sampler.fixed = fixed  # as on a GPU
            made.clear()
            rollouts = rl_step(run)
            assert made == ([1, 2] if fixed else [1])
            if fails:
                with pytest.raises(UserError, match="no task is left"):
                    rl_step(run)
                return []
            ids = [r.task.id for r in [*rollouts, *rl_step(run)]]
            assert made == ([1, 2, 3] if fixed else [1, 2])
            return ids

    assert first_step(True) == first_step(False)


def test_problems_that_were_solved_often_enough_are_not_drawn_again():
    one = feed(data__drop_solved_above=0.75)
    drawn = [task for _ in range(3) for task in one.tasks()]
    assert len({task.id for task in drawn}) == 24
    solved = {task.id for task in drawn[:10]}
    for task in drawn:  # three of four right, or two
        rights = (True, True, task.id in solved, False)
        counts = one.observe([answered(task, right) for right in rights])
    assert counts == {"data/solved": 10.0}
    again = [task.id for _ in range(7) for task in one.tasks()]  # four passes over the 14 that are left
    assert len(again) == 56 and set(again) == {task.id for task in drawn} - solved
    one.observe([answered(task, True) for task in drawn for _ in range(9)])
    said = "All problems have pass rates of at least data.drop_solved_above = 0.75"
    with pytest.raises(RunStopped, match=said):
        one.tasks()
    other = feed()  # without the key
    assert other.observe([answered(task, True) for task in other.tasks()]) == {} and other.rates == {}
    assert [t.id for t in other.tasks()] == [t.id for t in other.stream.batch(2)]


def test_further_tasks_are_counted_among_the_passes(tmp_path):
    asked = {"data__train_max_samples": 40, "trainer__total_training_steps": 10}
    asked |= {"trainer__test_freq": 0, "data__drop_solved_above": 0.01}
    rows = metrics_of(rlkit.train(config(**asked), root=tmp_path, progress=False))
    assert 2 < rows[-1]["data/epochs/arithmetic"] <= 3


def test_the_responses_of_several_steps_are_sampled_at_once_with_the_same_weights(tmp_path):
    c = config(**LAG, rollout__sync_check_freq=1, rollout__max_logprob_gap=1e-4)  # which ends no run where weights lag
    rows = metrics_of(rlkit.train(c, root=tmp_path, progress=False))[1:]
    assert [row["rollout/lag"] for row in rows] == [0, 1, 2, 0, 1, 2]
    assert ["timing_s/gen" in row for row in rows] == [True, False, False] * 2
    flops = np.diff([0, *(row["compute/rollout_flops"] for row in rows)])
    assert flops[0] > 0 == flops[1] == flops[2] < flops[3]  # counted when they are sampled
    moved = [row["actor/grad_norm"] > 0 for row in rows]
    gaps = [row["policy/logprob_gap"] for row in rows]
    assert gaps[0] < 1e-5 > gaps[3] and moved[0] and gaps[1] > 1e-4 < gaps[2]


def test_responses_ahead_are_those_of_one_call(tmp_path):
    """The first step of a run learns from the same responses whatever was sampled with them."""
    first = []
    for extra in ({}, LAG):
        with TrainingRun.open(config(**extra), tmp_path / str(len(first)), progress=False) as run:
            first.append([r.response_ids.tolist() for r in rl_step(run)])
    assert first[0] == first[1]


PHRASE = "So: "
INTERRUPTION = {"enable": True, "reserve": 8, "phrase": PHRASE}
CUT = {"rollout__interruption": INTERRUPTION, "data__max_response_length": 12}


def test_an_answer_that_does_not_end_is_told_to_and_the_loss_leaves_those_words_out(monkeypatch):
    c = config(**CUT)
    policy = load_policy(c.model)
    phrase = tuple(policy.tokenizer.encode(PHRASE, add_special_tokens=False))
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    tasks, limits = TaskStream(c, []).batch(1), Limits(12, reserve=8, phrase=phrase)
    rollouts = sample(tasks, sampler, policy, n=4, seed=1, limits=limits, prompt_limit=64)
    cut = [r for r in rollouts if r.forced is not None]
    assert len(cut) > 20  # random weights seldom end an answer in four tokens
    for r in rollouts:
        assert len(r.response_ids) == len(r.mask) == len(r.logprobs) <= 12
        if r.forced is None:
            assert len(r.response_ids) <= 4 and r.finish_reason == "stop" and r.mask.all()
            continue
        assert r.forced.tolist()[: 4 + len(phrase)] == [0] * 4 + [1] * len(phrase)
        assert tuple(r.response_ids[4 : 4 + len(phrase)]) == phrase and (r.mask + r.forced == 1).all()
        assert not r.logprobs[r.forced > 0].any() and r.logprobs[r.mask > 0].all()
        assert len(r.response_ids) > 4 + len(phrase)
        assert r.finish_reason == ("stop" if r.response_ids[-1] in policy.stop_ids else "length")
    asked, whole = list[str](), Router.submit

    def watched(self, rows):
        asked.extend(text for _, text, *_ in rows)
        return whole(self, rows)

    monkeypatch.setattr(Router, "submit", watched)
    with Router(c.reward) as router:
        grade(rollouts, router, policy)
    assert sum(PHRASE in text for text in asked) >= len({policy.decode(r.response_ids) for r in cut})
    batch = collate(rollouts, [i // 4 for i in range(len(rollouts))], policy.pad_id, "cpu")
    assert batch.mask.sum() == sum(r.mask.sum() for r in rollouts) < batch.attention.sum()


@pytest.mark.parametrize("extra", [{}, {"async_training__trigger_parameter_sync_step": 2}])
def test_a_run_learns_from_interrupted_answers_at_the_sampler_s_own_log_probs(tmp_path, extra):
    c = config(**CUT, **extra, model__warm_start__kind="none", trainer__total_training_steps=2)
    run = rlkit.train(c, root=tmp_path, progress=False)
    rows = metrics_of(run)[1:]
    assert all(row["response_length/interrupted"] > 0.5 for row in rows)
    assert all(row.get("policy/logprob_gap", 0.0) < 1e-5 for row in rows if not row.get("rollout/lag"))
    assert rlkit.read_evals(tmp_path / "test")["response"].str.contains(PHRASE).any()


def test_a_run_without_progress_ends_early_and_its_best_checkpoint_is_kept(tmp_path):
    name = "eval/pass@1"
    stop = {"trainer__early_stop": {"metric": name, "patience": 3}, "trainer__keep_best": name}
    c = config(**stop, trainer__total_training_steps=40, trainer__test_freq=1, actor__optim__lr=0.0)
    run = rlkit.train(c, root=tmp_path, progress=False)
    passed = {row["step"]: row[name] for row in metrics_of(run)}
    best = max(passed, key=lambda step: (passed[step], -step))
    assert run.status == "finished" and run.summary["steps"] == max(passed) == best + 3 < 40
    reason = json.loads((run.folder / "run.json").read_text())["reason"]
    assert reason == f"{name} has not risen for 3 evaluations since step {best} ({passed[best]:.3f})."
    assert [f.name for f in (run.folder / "best").iterdir()] == [f"step_{best:06d}"]
    before = (run.folder / "metrics.jsonl").read_bytes()
    assert rlkit.train(c, root=tmp_path, progress=False).summary["steps"] == max(passed)
    assert (run.folder / "metrics.jsonl").read_bytes() == before
    tasks = held_out(c)[:4]
    assert len(rlkit.evaluate(str(run.folder / "best"), tasks, n=2, max_tokens=6).rows) == 8
