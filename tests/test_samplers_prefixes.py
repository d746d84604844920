"""Prompts that continue earlier ones: the same samples, from a part of the computing."""

import numpy as np
import pytest
import tiny
import torch

from rlkit.models.attention import pad_right
from rlkit.samplers.cache import MOST_CELLS, PrefixCache, alike
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


def test_only_what_is_new_is_computed(monkeypatch):
    memory, counts = PrefixCache(TorchSampler(tiny.model(), ()).decoder, keep=5), []
    run = memory.decoder.run
    monkeypatch.setattr(memory.decoder, "run", lambda ids, *rest: counts.append(len(ids)) or run(ids, *rest))
    a, b = np.arange(1, 21), np.arange(5, 30)
    memory.prefill([a, b])
    memory.prefill([np.append(b, [1, 2]), np.append(a, [3]), a, b[:7], np.append(a[:15], [39, 38])])
    # the last id's state is computed even where all is known; a prompt that goes another way is computed whole
    assert counts == [45, 2 + 1 + 1 + 7 + 17]
    memory.prefill([np.append(a, [3, 4])])  # the first call went with the seventh prompt, not the second
    memory.prefill([np.append(b, [1, 2])])  # which went with the sixth after it
    assert counts[2:] == [1, 27]


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


def test_a_long_prompt_does_not_pad_the_short_ones():
    lengths = np.array([40, 4000, 250, 600, 30])
    assert [g.tolist() for g in alike(lengths, 4096, "cpu")] == [[0, 2, 4], [3], [1]]
    assert [g.tolist() for g in alike(lengths, 2, "cpu")] == [[0, 2], [4], [3], [1]]
    many = alike(np.full(100, 4096), 4096, "cuda")
    assert all(len(g) * 4096**2 <= MOST_CELLS for g in many) and sum(map(len, many)) == 100
