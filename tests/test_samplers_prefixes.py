"""Prompts that continue earlier ones: the same samples, from a part of the computing."""

import numpy as np
import pytest
import tiny
import torch

from rlkit.models.attention import pad_right
from rlkit.samplers.cache import PrefixCache
from rlkit.samplers.torch import TorchSampler


def longer(prompts, samples, seed):
    """Each prompt with its sample and a few observed ids, as the next turn's prompt."""
    observed = tiny.prompts(len(prompts), seed, 1, 6)
    return [np.concatenate([p, s.ids, o]) for p, s, o in zip(prompts, samples, observed, strict=True)]


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("fixed", [False, True])
def test_turns_of_a_session_draw_what_whole_prompts_draw(family, fixed):
    sampler = TorchSampler(tiny.model(family), stop_ids=(3, 8))
    session = sampler.session(keep=100)
    session.fixed = fixed
    first = tiny.prompts(3)
    options = {"max_tokens": 6, "temperature": 0.8}
    groups, own = (s.sample(first, 4, seed=0, **options) for s in (session, sampler))
    samples = [s for group in groups for s in group]
    tiny.assert_same(groups, own)
    prompts = longer([p for p in first for _ in range(4)], samples, 1)
    for turn in (1, 2, 3):
        kept = range(0, len(prompts), turn)  # some end, and others begin in between
        prompts = [prompts[i] for i in kept] + tiny.prompts(2, seed=10 + turn)
        mine, own = (s.sample(prompts, 1, seed=turn, **options) for s in (session, sampler))
        tiny.assert_same(mine, own)
        prompts = longer(prompts, [g[0] for g in mine], turn)


def test_kept_rows_of_other_lengths_leave_no_trace():
    decoder = TorchSampler(tiny.model(), ()).decoder
    memory, prompts = PrefixCache(decoder, keep=50), tiny.prompts(6, low=4, high=60)
    with torch.no_grad():
        memory.prefill([p[: len(p) // 2] for p in prompts[:4]] + [prompts[5]])
        mine, own = memory.prefill(prompts), decoder.prefill(*pad_right(prompts, 0))
    torch.testing.assert_close(mine.last, own.last, atol=1e-5, rtol=0)
    seen = (torch.arange(int(own.lengths.max())) < own.lengths[:, None])[:, None, :, None]
    for kept, plain in zip(mine.layers, own.layers, strict=True):
        torch.testing.assert_close(kept * seen, plain * seen, atol=1e-5, rtol=0)
        assert torch.isfinite(kept).all()


def test_a_session_that_is_synced_forgets_what_the_old_weights_computed():
    old, new, prompts = tiny.model(), tiny.model(seed=1), tiny.prompts(4)
    session = TorchSampler(old, ()).session(keep=9)
    session.sample(prompts, 1, seed=0, max_tokens=3)
    session.sync(new)
    after, own = (s.sample(prompts, 1, seed=0, max_tokens=3) for s in (session, TorchSampler(new, ())))
    tiny.assert_same(after, own)
