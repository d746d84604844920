"""Sizing: parameters as published, memory and time that scale as they must."""

import pytest

from rlkit.errors import UserError
from rlkit.params import read_yaml
from rlkit.scaleout.sizing import size

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


def test_a_misspelt_key_is_named():
    with pytest.raises(UserError, match="respons_tokens"):
        size({**read_yaml(FILE), "respons_tokens": 3})
