"""Sampler and trainer hold the same weights; the choice and memory of samplers; updates that do not fit."""

import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cases import table
from tiny import LETTERS, configured, metrics_of

from rlkit.backends import train
from rlkit.compute import Ledger
from rlkit.errors import RunStopped, UserError
from rlkit.models import kernels
from rlkit.models.kernels import EAGER
from rlkit.models.loading import load_policy
from rlkit.models.shapes import shape_of
from rlkit.samplers import vllm
from rlkit.samplers.choice import chosen, make_sampler
from rlkit.samplers.torch import TorchSampler
from rlkit.samplers.vllm_memory import GIB
from rlkit.training import update
from rlkit.training.update import Critic

BASE = {
    "study": "probe", "model": {"path": "ladder-10k", "warm_start": {"kind": "none"}},
    "reward": {"custom_reward_function": LETTERS},
    "data": {"train_batch_size": 8, "max_response_length": 6}, "evaluation": {"size": 20, "n": 1},
    "rollout": {"sync_check_freq": 1}, "actor": {"optim": {"lr": 3e-3}},
    "trainer": {"total_training_steps": 3, "test_freq": 0, "save_freq": 0},
}  # fmt: skip
config = partial(configured, BASE)


def test_a_sampler_that_keeps_old_weights_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(TorchSampler, "sync", lambda self, policy: None)
    said = r"At step 2: .* differ by .* nats a token, more than rollout.max_logprob_gap = 0.001"
    with pytest.raises(RunStopped, match=said):
        train(config(rollout__max_logprob_gap=0.001), root=tmp_path, progress=False)


def test_the_sampler_is_chosen_by_size_device_and_what_is_installed():
    """Sizes and devices: test_sizing_fit."""
    large, small, c = shape_of("qwen2.5-7b"), shape_of("qwen2.5-1.5b"), config()
    assert chosen(c, large, None) == ("torch", "there is no GPU")
    name, why = chosen(c, large, 150e9, installed=False)
    assert name == "torch" and "pip install" in why
    assert chosen(config(rollout__name="vllm"), small, None, installed=False)[0] == "vllm"
    assert "48% of the GPU's memory" in chosen(c, small, 15e9)[1]


def test_vllm_that_is_not_installed_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(UserError, match=r"rollout.name is 'vllm', but vLLM cannot be imported .*pip install"):
        train(config(rollout__name="vllm"), root=tmp_path, progress=False)


def test_the_sampler_knows_what_the_trainer_will_take(monkeypatch):
    found = {}
    monkeypatch.setattr(vllm, "VllmSampler", lambda _, **options: found.update(options))
    policy = load_policy(config().model)
    make_sampler(policy, config(rollout__name="vllm"))
    assert found["later"] == 8 * sum(p.numel() for p in policy.model.parameters())  # moments
    assert (found["max_num_seqs"], found["max_model_len"]) == (8 * 8, 256 + 6)
    make_sampler(policy, config(rollout__name="vllm", actor__optimizer_offload=True))
    assert found["later"] == 0


@pytest.mark.parametrize(*table("vllm_memory_options"))
def test_vllm_gets_what_it_can_use_serves_where_one_fits_and_warns_where_few_do(monkeypatch, sizes, cache, said):
    """60 of 80 GiB are free, 5 held by this run. `sizes`, GiB: beside the cache, of a sequence, their number, later."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 5 * GIB)
    beside, sequence, rows, later = sizes
    arguments = int(beside * GIB), int(sequence * GIB), rows, int(later * GIB)
    if cache is None:
        with pytest.raises(UserError, match=said):
            vllm.memory_options(*arguments)
        return
    with pytest.warns(UserWarning, match=said) if said else warnings.catch_warnings(action="error"):
        found = vllm.memory_options(*arguments)
    assert found["kv_cache_memory_bytes"] == pytest.approx(cache * GIB)
    assert found["gpu_memory_utilization"] * 80 == pytest.approx(beside + cache)


def test_an_update_out_of_memory_starts_again_in_halves_with_the_same_result(tmp_path, monkeypatch):
    """Passes of the policy with and without a gradient, and the critic's."""
    c = config(algorithm__adv_estimator="gae", actor__use_kl_loss=True)
    calm, failed = train(c, root=tmp_path / "calm", progress=False), set()

    def small_only(kind: str, of, at: int):
        def checked(*arguments):
            fits = 16 if torch.is_grad_enabled() else 24
            if len(arguments[at].rows) > fits:
                failed.add((kind, torch.is_grad_enabled()))
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")
            return of(*arguments)

        return checked

    monkeypatch.setattr(update, "token_logprobs", small_only("policy", update.token_logprobs, 1))
    monkeypatch.setattr(Critic, "predict", small_only("critic", Critic.predict, 1))
    with pytest.warns(UserWarning, match="going on with half of it"):
        tight = train(c, root=tmp_path / "tight", progress=False)
    assert failed >= {("policy", False), ("critic", False)}
    names = ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "actor/entropy", "critic/vf_loss", "critic/grad_norm")
    for a, b in zip(metrics_of(calm), metrics_of(tight), strict=True):
        # Smaller passes compute some prompts twice, and a try that failed is not counted.
        assert a["compute/total_flops"] <= b["compute/total_flops"] <= 1.1 * a["compute/total_flops"]
        assert {n: a[n] for n in names if n in a} == pytest.approx(
            {n: b[n] for n in names if n in b}, rel=1e-3, abs=1e-6
        )


def test_an_update_that_never_fits_ends_the_run_in_a_sentence(tmp_path, monkeypatch):
    def fails(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")

    monkeypatch.setattr(update, "token_logprobs", fails)
    with pytest.warns(UserWarning), pytest.raises(RunStopped, match="smallest forward pass of the update"):
        train(config(), root=tmp_path, progress=False)


@pytest.mark.parametrize(*table("compiled_where"))
def test_update_and_sampler_of_a_large_model_on_a_gpu_are_compiled(monkeypatch, border, use, expected):
    own = EAGER._replace()
    monkeypatch.setattr("rlkit.models.shapes.COMPILED_FROM", border)
    monkeypatch.setattr(kernels, "missing_compiler", lambda: None)
    monkeypatch.setattr(kernels, "compiled", lambda: own)
    c = config(actor__use_torch_compile=use, algorithm__adv_estimator="gae")
    policy = load_policy(c.model)
    found = SimpleNamespace(total_memory=2**34)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    for device, made in (("cuda", expected), ("cpu", use is True)):
        there: Any = SimpleNamespace(**vars(policy), base=policy.base, device=torch.device(device))
        learning = update.Learning(c, there, Ledger())
        assert learning.critic is not None
        assert (learning.actor.decoder.kernels is not EAGER) is made
        assert learning.critic.decoder.kernels is learning.actor.decoder.kernels
        sampler: Any = make_sampler(there, c)[0]
        assert sampler.decoder.kernels is learning.actor.decoder.kernels
