"""The FLOPs ledger against torch's own counter."""

import numpy as np
import pytest
import tiny
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from rlkit.compute import Ledger, Shape, Work
from rlkit.models.decoder import Decoder
from rlkit.samplers.torch import TorchSampler
from rlkit.training.forward import Rows, token_logprobs


def counted(function) -> float:
    """FLOPs of matrix products and attention while `function` runs, by torch's counter. Attention is sent
    through plain products, which the counter sees, instead of a fused kernel."""
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        function()
    return counter.get_total_flops()


def squares(p: int, s: int, b: int, t: int) -> Work:
    """What dense kernels compute, masked half included: pairs of every query and every key."""
    return Work(tokens=p * s + b * (t - 1), pairs=p * s * s + b * (t - 1) * (s + t - 1), heads=b * t)


def step(model, p=3, s=7, g=4, t=6, train=True):
    decoder, b = Decoder(model), p * g
    ids, mask = torch.randint(0, 40, (p, s)), torch.ones(p, s)
    index, responses = torch.arange(p).repeat_interleave(g), torch.randint(0, 40, (b, t))

    def run():
        with torch.set_grad_enabled(train):
            rows = Rows(torch.arange(b), ids, mask.bool(), index, responses, torch.ones(b, t).bool())
            loss = token_logprobs(decoder, rows)[0].sum()
        if train:
            loss.backward()

    return run, squares(p, s, b, t)


def test_a_forward_pass_is_counted_within_two_percent():
    model = tiny.model()
    run, work = step(model, train=False)
    assert Shape.of(model).forward(work) == pytest.approx(counted(run), rel=0.02)


def test_a_training_pass_is_counted_within_two_percent():
    model = tiny.model()
    run, work = step(model)
    assert Shape.of(model).training(work) == pytest.approx(counted(run), rel=0.02)


def test_a_lora_training_pass_is_counted_within_two_percent():
    model = get_peft_model(
        tiny.model(hidden_size=128, intermediate_size=256, num_hidden_layers=4),
        LoraConfig(r=2, target_modules="all-linear"),
    )
    run, work = step(model)
    assert Shape.of(model).training(work) == pytest.approx(counted(run), rel=0.02)


def test_a_rollout_is_counted_within_two_percent_of_its_dense_kernels():
    model, prompts = tiny.model(), [np.arange(1, 8)] * 3
    sampler = TorchSampler(model, stop_ids=())
    total = counted(lambda: sampler.sample(prompts, 4, seed=0, max_tokens=6))
    p, s, b, t = 3, 7, 12, 6
    decoded = sum(s + k for k in range(1, t))  # keys seen by each of the t - 1 tokens that are fed back
    work = Work(tokens=p * s + b * (t - 1), pairs=p * s * s + b * decoded, heads=b * t)
    assert Shape.of(model).forward(work) == pytest.approx(total, rel=0.02)


def test_work_counts_visible_keys_and_each_prompt_once():
    work = Work.of([3], [(3, 1), (3, 4)])
    assert work.tokens == 3 + 0 + 3
    assert work.heads == 1 + 4
    assert work.pairs == (1 + 2 + 3) + (4 + 5 + 6)  # prompt causal, then three fed-back tokens


def test_6nt_counts_every_sequence_with_its_own_prompt():
    shape = Shape.of(tiny.model())
    assert shape.non_embedding == sum(p.numel() for p in tiny.model().parameters()) - 40 * 32
    ledger = Ledger()
    ledger.sequences(shape, prompt_tokens=100, response_tokens=50)
    assert ledger.train_6nt == 6 * shape.non_embedding * 150


def test_totals_survive_a_checkpoint():
    ledger = Ledger()
    ledger.add("update", 5.0)
    ledger.time("step", 2.0)
    ledger.optimizer_steps = 3
    copy = Ledger()
    copy.load_state_dict(ledger.state_dict())
    copy.add("update", 1.0)
    assert copy.metrics()["compute/update_flops"] == 6.0 == copy.total
    assert copy.metrics()["training/optimizer_steps"] == 3
