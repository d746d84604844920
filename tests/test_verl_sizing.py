"""Sizing: parameters as published, memory and time that scale as they must."""

import pytest
import torch
from live_bytes import LiveBytes

from rlkit.compute import Shape
from rlkit.errors import UserError
from rlkit.params import read_yaml
from rlkit.verl.sizing import logprob_bytes, size

FILE = "params/scale_32b.yaml"


def table(**changes):
    return size({**read_yaml(FILE), **changes}).table.set_index("gpus")


def test_a_32b_model_needs_more_than_eight_gpus_of_80_gb():
    assert size(read_yaml(FILE)).config.sizing.parameters == pytest.approx(
        32.76e9, rel=0.002
    )  # Qwen2.5's card
    assert table().fits.to_dict() == {8: False, 16: True, 32: True, 64: True}
    assert table(lora=True).fits.all()
    ten = table(gpus=[10], micro_batch_tokens=4096)
    assert max(ten.trainer_gb[10], ten.sampler_gb[10]) < 72  # asleep in turns, each fits
    assert not ten.fits[10]  # weights and moments stay while vLLM is awake


def test_time_and_memory_scale_with_gpus_and_length():
    one, longer = table(), table(response_tokens=8192)
    assert one.update_s[8] / one.update_s[64] == pytest.approx(8)
    assert (
        4 < one.rollout_s[8] / one.rollout_s[64] <= 8
    )  # smaller batches read the weights for fewer sequences
    assert longer.rollout_s[16] > 2 * one.rollout_s[16]
    state = 16 * 32.76  # GB: float32 weights, gradients, two moments
    assert one.trainer_gb[8] - one.trainer_gb[16] == pytest.approx(state / 16, rel=0.01)
    assert table(runs=10).study_gpu_h[16] == pytest.approx(10 * one.study_gpu_h[16])
    assert one.price[16] == pytest.approx(2.5 * one.study_gpu_h[16])


@pytest.mark.parametrize("vocab, hidden", [(30_000, 64), (8000, 1024)])
def test_the_backward_pass_of_log_probs_holds_what_is_planned_whatever_the_tokens(vocab, hidden):
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    shape = Shape(layers=1, hidden=hidden, intermediate=1, heads=1, kv_heads=1, head_dim=1, vocab=vocab)
    weight = torch.randn(vocab, hidden, dtype=torch.bfloat16, requires_grad=True)
    for tokens in (1024, 3072):
        states = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.randint(0, vocab, (1, tokens))
        with LiveBytes(states, weight, targets) as live:
            logprobs, _ = FusedLinearForPPO()(states, weight, targets, temperature=0.7)
            live.peak = before = live.now
            logprobs.sum().backward()
        assert live.peak - before == pytest.approx(logprob_bytes(shape), rel=0.1)


def test_a_misspelt_key_is_named():
    with pytest.raises(UserError, match="respons_tokens"):
        size({**read_yaml(FILE), "respons_tokens": 3})
