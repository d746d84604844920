"""A thousand syncs: the sampler has the adapted weights, and the base weights are the bits that they were."""

import pytest
import tiny
import torch

from rlkit.models.decoder import Decoder
from rlkit.samplers.torch import TorchSampler


def drifted(
    sampler: TorchSampler, model, base: dict[str, torch.Tensor], syncs: int
) -> tuple[list[str], float]:
    """After `syncs` steps of a random adapter, each synced: the base weights that changed, and the largest
    difference between the sampler's weights and those of a sampler made now."""
    generator = torch.Generator().manual_seed(0)
    adapters = [p for n, p in model.named_parameters() if "lora_" in n]
    for _ in range(syncs):
        with torch.no_grad():
            for p in adapters:
                p.add_(torch.randn(p.shape, generator=generator).to(p.device), alpha=1e-2)
        sampler.sync(model)
    now = dict(model.named_parameters())
    changed = [n for n, p in base.items() if not torch.equal(now[n], p)]
    pairs = zip(sampler.decoder._tensors(), Decoder(model, frozen=True)._tensors(), strict=True)
    return changed, max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_thousand_syncs_leave_the_base_weights_bit_identical_and_the_sampler_exact(device, dtype):
    model = tiny.adapted(dtype).to(device)
    base = {n: p.clone() for n, p in model.named_parameters() if "lora_" not in n}
    first = TorchSampler(model, stop_ids=(3,))
    before = [t.clone() for t in first.decoder._tensors()]
    changed, gap = drifted(first, model, base, syncs=1000)
    assert len(base) > 20 and not changed
    assert gap == 0.0  # merged anew from the base each time: nothing adds up
    assert any(not torch.equal(a, b) for a, b in zip(before, first.decoder._tensors(), strict=True))
