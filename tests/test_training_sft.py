"""Supervised starts: of ladder and pretrained models, whole or by an adapter, interrupted, cached, counted."""

import errno
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import configured, metrics_of

from rlkit.backends import train
from rlkit.data import TaskStream, held_out
from rlkit.errors import UserError
from rlkit.models.loading import load_policy, save_model
from rlkit.models.shapes import shape_of
from rlkit.training import optimizer, warm_cache, warm_start
from rlkit.training.learner import SupervisedTrainer
from rlkit.training.warm_start import worked_batch


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(warm_cache, "CACHE", tmp_path / "warm")
    return tmp_path / "warm"


BASE = {
    "study": "sft", "model": {"path": "ladder-10k", "warm_start": {"steps": 24, "batch_size": 16, "lr": 5e-3}},
    "data": {"train_batch_size": 4, "max_prompt_length": 64, "max_response_length": 8}, "rollout": {"n": 2},
    "trainer": {"total_training_steps": 1, "test_freq": 0, "device": "cpu"}, "evaluation": {"size": 10, "n": 1},
}  # fmt: skip
config = partial(configured, BASE)


def pretrained(folder: Path) -> str:
    """A folder with a model that is no ladder size."""
    save_model(load_policy(config().model, seed=1), folder)
    return str(folder)


def start(c, *told) -> Any:
    started = warm_start.warm_start(c, *told)
    assert started is not None
    return started


def weights(started) -> dict[str, torch.Tensor]:
    return load_file(started.folder / "model.safetensors")


def equal(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_ctrl_c_ends_a_start_at_its_next_step_and_the_same_call_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole = start(config())
    monkeypatch.setattr(warm_cache, "CACHE", tmp_path / "other")
    monkeypatch.setattr(warm_start, "LOOK_EVERY", 4)
    seen = []

    def presses_at_eight(step, *_):
        seen.append(step)
        if step == 8:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        warm_start.warm_start(config(), presses_at_eight)
    assert warm_cache.to_make(config()) is not None
    started = start(config(), lambda step, *_: seen.append(step))
    assert seen == [4, 8, 12, 16, 20, 24] and warm_cache.to_make(config()) is None
    assert whole.facts == started.facts and equal(weights(whole), weights(started))
    assert not list((tmp_path / "other").glob(".*partial*"))


@pytest.mark.parametrize("rank", [0, 4])
def test_a_pretrained_model_is_trained_on_the_rows_that_are_set_aside(tmp_path, rank, monkeypatch):
    path, shown, batch = pretrained(tmp_path / "base"), [], warm_start.worked_batch

    def watched(policy, tasks, limit):
        shown.extend(tasks)
        return batch(policy, tasks, limit)

    monkeypatch.setattr(warm_start, "worked_batch", watched)
    c = config(
        model__path=path, model__warm_start__kind="sft", model__lora_rank=rank, data__sft_ratio=0.5,
        data__train_max_samples=200,
    )  # fmt: skip
    started = start(c)
    assert started.facts["steps"] == 24
    before, after = load_file(Path(path) / "model.safetensors"), weights(started)
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed and all("lora" not in name for name in after)
    assert any("embed" in name for name in changed) is (rank == 0)
    reinforced = TaskStream(c, held_out(c))
    drawn = {t.problem for step in range(1, 20) for t in reinforced.batch(step)}
    assert shown and not {t.problem for t in shown} & drawn
    run = train(c, root=tmp_path, progress=False)
    rows = metrics_of(run)
    assert rows[-1]["compute/sft_flops"] == started.facts["flops"] > 0
    assert rows[-1]["compute/total_flops"] > started.facts["flops"]
    info = json.loads((run.folder / "run.json").read_text())
    assert info["warm_start"]["threads"] == torch.get_num_threads()


def test_supervised_steps_learn_the_worked_answers_of_a_file(tmp_path):
    tasks = TaskStream(config(), held_out(config())).batch(1)
    path = tmp_path / "worked.jsonl"
    path.write_text("".join(json.dumps(t.to_row()) + "\n" for t in tasks))
    c = config(
        model__path=pretrained(tmp_path / "base"), model__warm_start__kind="sft", model__warm_start__steps=60,
        model__warm_start__sources=[{"kind": "file", "path": str(path)}],
    )  # fmt: skip
    losses = []
    start(c, lambda step, steps, loss: losses.append(loss))
    assert losses[-1] < losses[0] - 0.1


def test_a_model_without_a_supervised_start_has_none_and_keys_follow_what_decides_the_weights(tmp_path, monkeypatch):
    path = pretrained(tmp_path / "ladder-10k")
    assert warm_cache.place(config(model__path=path)) is None
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)  # where a folder has a ladder size's name
        assert warm_cache.place(config()) is None and shape_of("ladder-10k") == shape_of(path)
    assert warm_cache.place(config()) is not None
    one = config(model__path=path, model__warm_start__kind="sft")
    keys = {warm_cache.cache_key(c) for c in (
        one, config(model__path=path, model__warm_start__kind="sft", model__lora_rank=4),
        config(model__path=path, model__warm_start__kind="sft", data__sft_ratio=0.5),
    )}  # fmt: skip
    assert len(keys) == 3
    assert warm_cache.cache_key(one) in keys
    (Path(path) / "model.safetensors").touch()
    assert warm_cache.cache_key(one) not in keys  # other weights at the same place


def test_a_cache_that_cannot_be_written_is_a_sentence_and_reuse_writes_nothing(cache, monkeypatch):
    started = start(config())

    def fails(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(warm_start, "FileLock", fails)
    monkeypatch.setattr(Path, "mkdir", fails)
    assert warm_start.warm_start(config()) == started
    with pytest.raises(UserError, match=r"Cannot write .*warm: Permission denied"):
        warm_start.warm_start(config(model__warm_start__seed=3))


def test_answers_longer_than_the_limit_are_left_out():
    policy = load_policy(config().model)
    tasks = TaskStream(config(), held_out(config())).batch(1)
    lengths = [len(policy.encode_all([t.prompt])[0]) + len(t.worked_answer) + 1 for t in tasks]
    batch = worked_batch(policy, tasks, limit=min(lengths))
    assert batch is not None and len(batch) == lengths.count(min(lengths))
    assert worked_batch(policy, tasks, limit=3) is None


def test_moments_on_the_host_change_nothing_and_are_on_the_device_for_the_step_alone():
    def run(offload: bool) -> tuple[list[float], dict]:
        policy = load_policy(config().model)
        trainer = SupervisedTrainer(policy, config(actor__optim__lr=1e-2, trainer__total_training_steps=5))
        stepper = trainer.stepper
        if offload:
            stepper.moments = optimizer.HostMoments(stepper.optimizer)
        batch = worked_batch(policy, TaskStream(config(), held_out(config())).batch(1))
        assert batch is not None
        losses = [trainer.step(batch, batch.mask) for _ in range(4)]
        kept = [s["exp_avg"] for s in stepper.optimizer.state.values()]
        trainer.step(batch, batch.mask)
        again = [s["exp_avg"] for s in stepper.optimizer.state.values()]
        if offload:  # the same buffers of the host, step after step
            assert all(a.data_ptr() == b.data_ptr() for a, b in zip(kept, again, strict=True))
        saved = trainer.state_dict()
        trainer.load_state_dict(saved)
        return losses, policy.model.state_dict()

    (losses, there), (others, here) = run(False), run(True)
    assert losses == others and equal(there, here)


def test_a_start_trained_on_a_gpu_is_another_than_one_of_the_cpu(monkeypatch):
    on_cpu = warm_cache.place(config())
    monkeypatch.setattr(warm_cache, "cuda_here", lambda: True)
    changes = [dict(trainer__device=device, trainer__tf32=tf32) for device in ("auto", "cuda") for tf32 in (0, 1)]
    places = {warm_cache.place(config(**dotted)) for dotted in changes}
    assert len(places) == 2 and on_cpu not in places
    assert warm_cache.place(config()) == on_cpu  # trainer.device is cpu
