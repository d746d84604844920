"""Whole runs of the smallest model: what is written, how a run goes on, what stops it."""

import json
import os
import shutil
import signal
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import cases
from resumed import differences, killed_run, whole_run
from tiny import LETTERS, config, metrics_of

import rlkit
from rlkit.errors import RunStopped, UserError
from rlkit.models.loading import load_policy, save_model
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import Run, RunStore
from rlkit.training import checkpoint, sampling, warm_cache
from rlkit.training.checks import preflight
from rlkit.training.export import open_saved
from rlkit.training.interrupt import Interrupted
from rlkit.training.learner import SupervisedTrainer
from rlkit.training.run import TrainingRun
from rlkit.types import Reward
from rlkit.verl import backend

SHORT = {"trainer__total_training_steps": 1, "trainer__test_freq": 0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    """A finished run of six steps, which no test changes."""
    return train(config(), tmp_path_factory.mktemp("finished"))


def train(c, root) -> Run:
    return rlkit.train(c, root=root, progress=False)


def info_of(run: Run) -> dict[str, Any]:
    return json.loads((run.folder / "run.json").read_text())


def folder_of(c, root: Path) -> Path:
    return root / "test" / "runs" / c.id


@pytest.mark.filterwarnings("ignore:step")
def test_sampler_and_trainer_agree_better_in_float16_than_in_bfloat16(tmp_path):
    gaps, norms = {}, {}
    for dtype in ("float32", "bfloat16", "float16"):
        c = config(model__dtype=dtype, model__warm_start__kind="none", actor__entropy_coeff=0.01, **SHORT)
        rows = metrics_of(train(c, tmp_path))
        gaps[dtype] = max(row.get("policy/logprob_gap", 0.0) for row in rows)
        norms[dtype] = next(row["actor/grad_norm"] for row in rows if row.get("actor/grad_norm"))
    assert gaps["float32"] < gaps["float16"] < gaps["bfloat16"] / 3
    assert norms["float16"] == pytest.approx(norms["float32"], rel=5e-3)  # scaled down again


def test_tf32_and_threads_are_those_of_the_runs_that_ask_for_them_alone(tmp_path):
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    for tf32, threads in ((True, 1), (False, 0)):
        c = config(trainer__tf32=tf32, trainer__num_threads=threads)
        with TrainingRun.open(c, tmp_path, progress=False):
            seen.append((torch.backends.cuda.matmul.allow_tf32, torch.get_num_threads()))
    torch.set_num_threads(before)
    assert seen == [(True, 1), (False, 2)]


def test_a_run_leaves_all_its_parts(finished):
    run = finished
    assert run.status == "finished" and run.folder == folder_of(config(), run.folder.parents[2])
    rows = metrics_of(run)
    assert [r["step"] for r in rows] == list(range(7))
    assert [r["step"] for r in rows if "eval/pass@1" in r] == [0, 3, 6]
    logged = {name: value for row in rows for name, value in row.items()}
    names = [
        "critic/score/mean", "actor/entropy", "actor/grad_norm", "actor/lr", "response_length/clip_ratio",
        "group/zero_variance", "policy/logprob_gap", "compute/total_flops", "timing_s/gen", "reward/error_rate",
    ]  # fmt: skip
    for name in names:
        assert np.isfinite(logged[name]), name
    assert logged["policy/logprob_gap"] < 1e-4
    assert rows[6]["compute/total_flops"] > rows[3]["compute/total_flops"] > 0
    assert checkpoint_steps(run.folder / "checkpoints") == [4, 6]
    info = info_of(run)
    assert info["status"] == "finished" and info["scorer_version"] and len(info["held_out_hash"]) == 16
    assert info["parameters_non_embedding"] == 10_432
    assert info["sampler"] == "torch: there is no GPU" and info["compiled"] is False
    assert info["micro_batch_tokens"] == 8_192
    evals = rlkit.read_evals(run.folder)
    assert len(evals) == 3 * 20 * 2 and set(evals["step"]) == {0, 3, 6}
    from transformers import AutoModelForCausalLM

    folder = checkpoint.folder_of(run.folder / "checkpoints", 6) / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == info["parameters_total"]


def test_a_finished_run_returns_at_once_and_changes_nothing_or_is_refused(finished):
    before = (finished.folder / "metrics.jsonl").read_bytes()
    again = train(config(), finished.folder.parents[2])
    assert again.status == "finished" and (finished.folder / "metrics.jsonl").read_bytes() == before
    assert again.summary["last"] == finished.summary["last"]
    with pytest.raises(UserError, match="resume_mode is 'disable', but .* has a checkpoint of step 6"):
        train(config(trainer__resume_mode="disable"), finished.folder.parents[2])


def test_another_seed_gives_other_bits(finished, tmp_path):
    assert differences(finished.folder, train(config(seed=1), tmp_path).folder) != []


@pytest.mark.parametrize(("name", "extra"), cases("ended_runs"))
def test_a_run_that_was_ended_goes_on_to_the_same_bits(finished, tmp_path, name, extra, capfd):
    """Ended by signals at step borders, right after a checkpoint and in between; the last one is then broken."""
    whole = train(config(**extra), tmp_path / "whole") if extra else finished
    assert any(row.get("actor/grad_norm", 0) > 0 for row in metrics_of(whole))  # something was learnt at all
    for stop_at in (2, 3, 5):
        assert train_until(config(**extra), tmp_path / "cut", stop_at).status == "stopped"
        assert capfd.readouterr().err.count("Stopping after this step") == 1
    root = folder_of(config(**extra), tmp_path / "cut") / "checkpoints"
    os.truncate(checkpoint.folder_of(root, 5) / "state.pt", 100)
    with pytest.warns(UserWarning, match="step 5 is broken"):
        resumed = train(config(**extra), tmp_path / "cut")
    assert differences(whole.folder, resumed.folder) == [] and checkpoint.newest(root, pytest.fail) == 6


def train_until(c, root, step) -> Run:
    """Train in this process and send it SIGTERM during the given step."""
    begin = TrainingRun.begin_step

    def begin_step(self):
        begin(self)
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "begin_step", begin_step)
        return train(c, root)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", [(SupervisedTrainer, "step"), (RunStore, "update")], ids=["warm start", "opening"])
def test_before_the_first_step_a_signal_ends_the_run_at_once(tmp_path, monkeypatch, place, number):
    calls, whole = [], getattr(*place)

    def interrupted(self, *arguments, **fields):
        calls.append(whole(self, *arguments, **fields))
        os.kill(os.getpid(), number)
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(warm_cache, "CACHE", tmp_path / "warm")
        patch.setattr(*place, interrupted)
        run = train(config(**SHORT), tmp_path)
    assert len(calls) == 1  # nothing went on
    assert run.status == "stopped" and run.summary == {"steps": 0}
    assert info_of(run)["status"] == "stopped" and info_of(run).get("reason") is None
    assert train(config(**SHORT), tmp_path).status == "finished"  # nothing stands in the way


def test_a_run_on_verl_that_a_signal_ends_early_is_a_stopped_run_as_here(tmp_path, monkeypatch):
    def interrupted(c, root, progress):
        with RunStore.open(c, root):
            raise Interrupted("interrupted before the first step")

    monkeypatch.setattr(backend, "train", interrupted)
    verl = config().trainer.model_copy(update={"backend": "verl"})
    run = train(config().model_copy(update={"trainer": verl}), tmp_path)
    assert run.status == "stopped" == info_of(run)["status"]


@pytest.mark.slow
def test_killed_at_random_moments_the_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    """The command that users have: three processes, one of them killed with SIGKILL."""
    monkeypatch.chdir(tmp_path)  # the processes keep their warm start here
    c = config(trainer__total_training_steps=150, trainer__save_freq=1, trainer__test_freq=0)
    whole = whole_run(c, tmp_path / "whole")
    steps = killed_run(c, tmp_path / "killed", kills=2, seed=2)
    assert len(steps) == 2 and all(0 < step < 150 for step in steps)
    assert differences(whole, whole_run(c, tmp_path / "killed")) == []


@pytest.mark.parametrize(("message", "changes"), cases("runs_that_cannot_begin"))
def test_what_would_end_a_run_at_its_first_step_is_said_before_it_has_a_folder(tmp_path, message, changes):
    with pytest.raises(UserError, match=message):
        train(config(**changes), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_phrase_that_leaves_no_room_for_an_answer_is_refused(tmp_path):
    interruption = {"enable": True, "reserve": 3, "phrase": "too long"}
    with pytest.raises(UserError, match="its phrase alone has 8"):
        train(config(rollout__interruption=interruption), tmp_path)


SHAPED = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"right": 1.0, "wrong": %s}["right" if solution_str == ground_truth else "wrong"]
"""


@pytest.mark.filterwarnings("ignore:step")
def test_a_shaped_reward_is_no_pass_and_a_changed_one_is_another_run(tmp_path):
    (grader := tmp_path / "grader.py").write_text(SHAPED % 0.1)
    c = config(reward__custom_reward_function=f"{grader}:compute_score", trainer__total_training_steps=2)
    run = train(c, tmp_path)
    evals = rlkit.read_evals(tmp_path / "test")
    assert set(evals["value"].round(6)) == {0.1, 1.0} and 0 < evals["correct"].mean() < 1
    assert (evals["correct"] == (evals["value"] == 1)).all()
    info = info_of(run)
    assert info["scorer"] == f"{grader}:compute_score" and len(info["scorer_version"]) == 12
    assert info["warnings"]["undecided"].startswith("step 1: reward.custom_reward_function gives scores other than 0")
    grader.write_text(SHAPED % 0.9)
    with pytest.raises(UserError, match="was begun with scorer_version .* Restore what has changed"):
        train(c, tmp_path)


@pytest.mark.filterwarnings("ignore:step")
def test_a_run_that_stops_itself_leaves_a_checkpoint_of_its_last_whole_step(tmp_path, monkeypatch):
    """The judge fails in the fourth step; once it is back, the run goes on to the bits of one without trouble."""
    graded, asked = sampling.grade, []

    def judge_down(rollouts, router, policy):
        graded(rollouts, router, policy)
        asked.append(rollouts)
        for rollout in rollouts if len(asked) == 4 else []:
            rollout.reward = Reward(error="the judge is down")

    options = {"trainer__test_freq": 0, "trainer__save_freq": 0, "async_training__trigger_parameter_sync_step": 5}
    c = config(**options, algorithm__adv_estimator="gae")
    said = r"32 of 32 answers could not be graded.*the judge is down"
    with monkeypatch.context() as patch, pytest.raises(RunStopped, match=said):
        patch.setattr(sampling, "grade", judge_down)
        train(c, tmp_path / "cut")
    info = json.loads((folder_of(c, tmp_path / "cut") / "run.json").read_text())
    assert info["status"] == "stopped" and "judge is down" in info["reason"]
    assert checkpoint_steps(folder_of(c, tmp_path / "cut") / "checkpoints") == [3]
    cut = train(c, tmp_path / "cut")
    whole = train(c, tmp_path / "whole")
    assert differences(whole.folder, cut.folder) == []


@pytest.mark.filterwarnings("ignore:step")
def test_a_run_that_diverged_ends_in_a_sentence_that_says_so(tmp_path):
    c = config(actor__optim__lr=1e30, actor__optim__clip_grad=0)
    with pytest.raises(RunStopped, match=r"are not finite: training has diverged \(lower actor"):
        train(c, tmp_path)
    info = json.loads((folder_of(c, tmp_path) / "run.json").read_text())
    assert info["status"] == "stopped" and "diverged" in info["reason"]


def test_a_run_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train(config(**SHORT), tmp_path)))
    thread.start()
    thread.join()
    assert results and results[0].status == "finished"


def test_a_run_says_how_far_its_warm_start_is(tmp_path, monkeypatch):
    told, update = [], RunStore.update

    def listen(store, **fields):
        told.extend([fields["phase"]] if "phase" in fields else [])
        update(store, **fields)

    monkeypatch.setattr(RunStore, "update", listen)
    monkeypatch.setattr(warm_cache, "CACHE", tmp_path / "warm")
    c = config(model__warm_start__steps=30, trainer__total_training_steps=1)
    with TrainingRun.open(c, tmp_path, progress=False):
        assert told == ["preparing the model", *(f"warm start {step}/30" for step in (10, 20, 30)), ""]


def test_defaults_for_ladder_models_are_told_where_the_model_is_another(tmp_path):
    save_model(load_policy(config().model), tmp_path / "own")
    own = {"model__path": str(tmp_path / "own"), "algorithm__adv_estimator": "gae"}
    with pytest.warns(UserWarning) as told:
        preflight(config(**own))
    keys = [str(w.message).split(" is ")[0] for w in told]
    assert keys == ["actor.optim.lr", "critic.optim.lr", "data.max_response_length"]
    assert "verl's default is 1e-6" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preflight(config())
        fit = {"actor__optim__lr": 1e-6, "critic__optim__lr": 1e-5, "data__max_response_length": 64}
        preflight(config(**own, **fit))


def test_groups_of_equal_rewards_are_replaced_until_there_are_enough(tmp_path):
    extra = {**SHORT, "algorithm__filter_groups__enable": True, "trainer__total_training_steps": 3}
    rows = metrics_of(train(config(**extra), tmp_path / "whole"))[1:]
    assert any(row["train/num_gen_batches"] > 1 for row in rows)
    assert all(row["actor/grad_norm"] > 0 for row in rows)
    sampled = [row["train/num_gen_batches"] for row in rows]
    assert sum(sampled) * 8 == rows[-1]["data/tasks/arithmetic"] + rows[-1]["data/tasks/string_trace"]
    few = {**extra, "algorithm__filter_groups__max_num_gen_batches": 1}
    with pytest.raises(RunStopped, match=r"of 8 groups had unequal rewards .*max_num_gen_batches = 1 "):
        train(config(**few), tmp_path / "few")


def test_a_run_goes_on_from_another_s_checkpoint_with_more_steps_or_another_key(tmp_path):
    extra = {"trainer__keep_best": "eval/pass@1", "algorithm__adv_estimator": "gae"}
    whole = train(config(**extra), tmp_path / "whole")
    short = train(config(trainer__total_training_steps=3, **extra), tmp_path)
    given = {"trainer__resume_from_path": str(checkpoint.folder_of(short.folder / "checkpoints", 3))}
    longer = train(config(**extra, **given), tmp_path)
    assert longer.folder != short.folder and differences(whole.folder, longer.folder) == []
    best = [{folder.name for folder in (run.folder / "best").glob("*")} for run in (whole, longer)]
    assert best[0] == best[1] and len(best[0]) == 1
    assert info_of(longer)["parent"] == {"run": short.id, "step": 3}
    changes = {"actor__optim__lr": 1e-3, "trainer__total_training_steps": 5, "trainer__keep_best": None}
    forked = train(config(**extra | changes, **given), tmp_path)
    assert not (forked.folder / "best").exists()  # nor is one taken over
    scores = [[row["critic/score/mean"] for row in metrics_of(run)[1:]] for run in (whole, forked)]
    rates = [row.get("actor/lr") for row in metrics_of(forked)[1:]]
    assert scores[0][:3] == scores[1][:3] and set(rates[3:]) - {None} == {1e-3}
    with pytest.raises(UserError, match="a checkpoint of step 3: raise trainer.total_training_steps = 2"):
        train(config(trainer__total_training_steps=2, **extra, **given), tmp_path)
    with pytest.raises(UserError, match="a checkpoint of another model, adapter or critic"):
        train(config(model__path="ladder-30k", model__warm_start__kind="none", **extra, **given), tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "step_000004", "outputs/test/runs/1/checkpoints/best"])
def test_a_checkpoint_that_is_none_is_told_before_the_warm_start(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warm_cache, "CACHE", tmp_path / "warm")
    with pytest.raises(UserError, match=f"resume_from_path is '{name}', which is no checkpoint: give outputs/"):
        train(config(trainer__resume_from_path=name), tmp_path)
    assert not (tmp_path / "warm").exists()


def test_an_adapter_goes_on_over_the_warm_start_that_it_was_trained_over(tmp_path, monkeypatch):
    """On a machine of another kind the same config makes other weights, and the run's own are copied there or not."""

    def logits(run: Path) -> torch.Tensor:
        return open_saved(run).policy.model(input_ids=torch.arange(1, 41)[None]).logits

    c = config(model__lora_rank=4, actor__use_kl_loss=True)
    whole = train(c, tmp_path / "whole")
    ours = logits(whole.folder)
    assert train_until(c, tmp_path / "cut", 3).status == "stopped"
    own = warm_cache.place(c)
    assert own is not None
    other = f"{own.name.rpartition('-')[0]}-of1a2gpu3"
    for root, key in (("cut", "goes on"), ("whole", "is forked")):
        info = folder_of(c, tmp_path / root) / "run.json"
        facts = json.loads(info.read_text())
        info.write_text(json.dumps(facts | {"warm_start": facts["warm_start"] | {"name": other}}))
        given = {"trainer__resume_from_path": str(info.parent / "checkpoints" / "step_000004")}
        again = c if root == "cut" else config(model__lora_rank=4, actor__use_kl_loss=True, **given)
        with monkeypatch.context() as patch:
            patch.setattr(warm_cache, "CACHE", tmp_path / key)
            for ask in (partial(train, again, tmp_path / root), partial(open_saved, info.parent)):
                with pytest.raises(UserError, match=f"over the warm start .*{other}, which is not here: copy that"):
                    ask()
            shutil.copytree(own, tmp_path / key / other)
            longer = train(again, tmp_path / root)
            assert torch.equal(logits(longer.folder), ours)
        named = {f"step_000006/model/{name}: the bytes differ" for name in ("README.md", "adapter_config.json")}
        assert set(differences(whole.folder, longer.folder)) <= named  # which hold the path of the warm start


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "reinforce_plus_plus"])
def test_a_step_of_one_token_teaches_nothing_where_advantages_are_whitened(tmp_path, estimator):
    sizes = {"data__train_batch_size": 1, "rollout__n": 1, "data__max_response_length": 1}
    c = config(algorithm__adv_estimator=estimator, **sizes, **SHORT)
    with pytest.warns(UserWarning, match="1 tokens of comparable answers were left .* nothing was learnt"):
        run = train(c, tmp_path)
    assert run.status == "finished" and "actor/grad_norm" not in metrics_of(run)[-1]


def test_the_best_checkpoint_of_a_step_that_is_done_again_has_the_new_weights(tmp_path):
    with TrainingRun.open(config(trainer__keep_best="eval/pass@1"), tmp_path, progress=False) as run:
        run.save(best=True)
        weights = checkpoint.folder_of(run.store.folder / "best", 0) / "model" / "model.safetensors"
        before = weights.read_bytes()
        with torch.no_grad():
            next(iter(run.learning.actor.trained.values())).add_(1.0)
        run.save(best=True)
        assert weights.read_bytes() != before


LEARNS = {
    **SHORT, "model__warm_start__kind": "none", "data__train": [{"kind": "arithmetic"}], "rollout__n": 8,
    "actor__optim__lr": 2e-2, "reward__custom_reward_function": LETTERS, "trainer__total_training_steps": 12,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize(("name", "changes"), cases("algorithms_that_learn"))
def test_each_algorithm_raises_a_reward_that_a_random_policy_can_find(tmp_path, name, changes):
    c = config(**LEARNS | changes)
    rewards = [row["critic/score/mean"] for row in metrics_of(train(c, tmp_path))[1:]]
    assert len(rewards) == c.trainer.total_training_steps
    assert np.mean(rewards[-5:]) > np.mean(rewards[:3]) + 0.2, rewards[::5]
