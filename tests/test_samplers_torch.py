"""The torch sampler: its log-probs, its randomness, its stops, its caches."""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from rlkit.samplers import cache
from rlkit.samplers import torch as torch_sampler
from rlkit.samplers.cache import FixedCache, Replayed, decode_attention, fastest_attention
from rlkit.samplers.draw_tokens import Settings, draw, nucleus
from rlkit.samplers.torch import TorchSampler

SETTINGS = Settings(temperature=1.0, top_p=1.0)


def drawn(groups) -> list[list[int]]:
    """The ids of each sample."""
    return [sample.ids.tolist() for group in groups for sample in group]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_log_probs_are_the_models_own_at_the_sampling_temperature(temperature):
    model, prompts = tiny.model(), tiny.prompts(5)
    prompts += [prompts[0], prompts[0][:-1]]  # equal prompts and one's beginning keep their own samples
    sampler = TorchSampler(model, stop_ids=(3, 8))
    groups = sampler.sample(prompts, 6, seed=1, max_tokens=9, temperature=temperature)
    lengths = set()
    for prompt, group in zip(prompts, groups, strict=True):
        for sample in group:
            own = tiny.reference_logprobs(model, prompt, sample.ids, temperature).detach().numpy()
            np.testing.assert_allclose(sample.logprobs, own, atol=2e-5)
            lengths.add(len(sample.ids))
    assert len(lengths) > 3  # sequences stopped at different times, so the batch was re-packed on the way


def test_the_frequencies_of_two_tokens_are_the_products_of_their_probabilities():
    model, prompt = tiny.model(vocab_size=5), np.array([1, 2, 3])
    samples = TorchSampler(model, stop_ids=()).sample([prompt], 20_000, seed=3, max_tokens=2)[0]
    counts, exact = np.zeros((5, 5)), np.zeros((5, 5))
    for s in samples:
        counts[tuple(s.ids)] += 1
    for pair in np.ndindex(5, 5):
        exact[pair] = np.exp(tiny.reference_logprobs(model, prompt, np.array(pair)).sum().item())
    assert exact.sum() == pytest.approx(1, abs=1e-5)
    chi2 = ((counts - 20_000 * exact) ** 2 / (20_000 * exact)).sum()
    assert chi2 < 52  # 24 degrees of freedom: 52 is exceeded once in a thousand


def test_greedy_is_the_models_argmax_with_log_probs_at_temperature_one():
    model, prompt = tiny.model(), tiny.prompts(1)[0]
    sample = TorchSampler(model, stop_ids=()).sample([prompt], 1, seed=0, max_tokens=6, temperature=0)[0][0]
    generated = model.generate(
        torch.from_numpy(prompt)[None], max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert sample.ids.tolist() == generated[0, len(prompt) :].tolist()
    own = tiny.reference_logprobs(model, prompt, sample.ids).detach()
    np.testing.assert_allclose(sample.logprobs, own, atol=2e-5)


def test_a_seed_repeats_however_many_are_decoded_together_and_another_does_not_and_a_group_is_diverse():
    model, prompts = tiny.model(), tiny.prompts(6)
    one, other = (TorchSampler(model, stop_ids=(3,), max_num_seqs=most) for most in (64, 4))
    whole, again, pieces = (s.sample(prompts, 4, seed=2, max_tokens=7) for s in (one, one, other))
    assert drawn(whole) == drawn(again) == drawn(pieces)
    assert drawn(whole) != drawn(one.sample(prompts, 4, seed=3, max_tokens=7))
    assert len({tuple(s.ids) for s in whole[0]}) > 1


LIMITED = {
    "logits": (cache, "logits_of", lambda hidden, _: len(hidden)),
    "cache": (torch_sampler, "GrowingCache", lambda *arguments: arguments[2]),
}


@pytest.mark.parametrize("what", LIMITED)
def test_a_batch_that_the_memory_does_not_hold_is_decoded_in_halves(monkeypatch, what):
    module, name, rows_of = LIMITED[what]
    sampler, prompts = TorchSampler(tiny.model(), stop_ids=(3,)), tiny.prompts(6)
    whole, limit, made = sampler.sample(prompts, 4, seed=2, max_tokens=7), [7], getattr(module, name)

    def limited(*arguments):
        if rows_of(*arguments) > limit[0]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return made(*arguments)

    monkeypatch.setattr(module, name, limited)
    with pytest.warns(UserWarning, match="does not hold all sequences: decoding 6 together"):
        parts = sampler.sample(prompts, 4, seed=2, max_tokens=7)
    assert drawn(parts) == drawn(whole)
    limit[0] = 3
    with pytest.raises(torch.cuda.OutOfMemoryError):  # not one group
        sampler.sample(prompts, 4, seed=2, max_tokens=7)


def test_every_stop_id_ends_a_response_belongs_to_it_and_nothing_follows():
    groups = TorchSampler(tiny.model(), stop_ids=(3, 8)).sample(tiny.prompts(8), 8, seed=1, max_tokens=12)
    samples = [s for g in groups for s in g]
    ended = [s for s in samples if s.finish_reason == "stop"]
    assert {int(s.ids[-1]) for s in ended} == {3, 8}
    assert all(not np.isin(s.ids[:-1], (3, 8)).any() for s in samples)
    assert all(len(s.ids) == 12 for s in samples if s.finish_reason == "length")
    assert all(len(s.ids) == len(s.logprobs) for s in samples)
    groups = TorchSampler(tiny.model(), stop_ids=range(20)).sample(tiny.prompts(4), 16, seed=1, max_tokens=1)
    for s in chain(*groups):  # a stop token at the limit has ended the response
        assert s.finish_reason == ("stop" if s.ids[0] < 20 else "length")


def test_the_nucleus_leaves_the_right_tokens():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    for top_p, left in ((0.7, 2), (0.81, 3), (0.01, 1)):
        assert torch.isfinite(nucleus(logits, top_p)).tolist() == [[True] * left + [False] * (4 - left)]
    middle = torch.tensor([0.6])
    assert draw(logits, middle, SETTINGS)[0] == 1
    assert draw(logits, middle, SETTINGS._replace(top_p=0.01))[0] == 0


@pytest.mark.parametrize("vocab", [300, 8_192, 50_257, 151_936])
def test_a_token_is_drawn_where_the_running_sum_passes_the_random_number(vocab):
    random = torch.Generator().manual_seed(vocab)
    logits = 3 * torch.randn(1, vocab, generator=random)
    logits[:, torch.randint(vocab, (vocab // 2,), generator=random)] = -torch.inf
    uniform = torch.cat((torch.rand(2_000, generator=random), torch.tensor([0.0, 1 - 2**-24])))
    tokens, logprobs = draw(logits.expand(len(uniform), -1), uniform, SETTINGS)
    exact = logits[0].double().softmax(-1)
    sums = exact.cumsum(-1)
    assert (exact[tokens] > 0).all()
    np.testing.assert_allclose(logprobs, exact[tokens].log(), rtol=1e-4)
    distance = torch.maximum(sums[tokens] - exact[tokens] - uniform, uniform - sums[tokens]).clamp(min=0)
    assert distance.max() < 5e-6  # of the draw from what its token covers: the rounding of float32's sums
    assert (distance > 0).float().mean() < 0.05


@pytest.mark.parametrize("fixed", [False, True])
def test_prompts_computed_in_several_passes_are_those_of_one(monkeypatch, fixed):
    model, prompts = tiny.model(), tiny.prompts(7)
    options: dict[str, Any] = dict(seed=0, max_tokens=6)
    sampler = TorchSampler(model, stop_ids=(3,))
    whole = sampler.sample(prompts, 3, **options)
    monkeypatch.setattr(torch_sampler, "PREFILLED", 2 * max(map(len, prompts)))
    sampler.fixed = fixed
    tiny.assert_same(sampler.sample(prompts, 3, **options), whole)


@pytest.mark.parametrize(("temperature", "small"), [(0.0, False), (0.8, False), (0.8, True)])
def test_decoding_in_fixed_buffers_draws_the_same_samples(monkeypatch, temperature, small):
    """What runs captured on a GPU: buckets small enough that rows are compacted and widths change on the way."""
    monkeypatch.setattr("rlkit.models.shapes.FEWEST_ROWS", 4)
    monkeypatch.setattr("rlkit.models.shapes.MANY_ROWS", 8)
    monkeypatch.setattr("rlkit.models.shapes.NARROWEST", 2)
    monkeypatch.setattr(FixedCache, "every", 2)
    model = tiny.model()
    dynamic, fixed = TorchSampler(model, stop_ids=(3, 8)), TorchSampler(model, stop_ids=(3, 8))
    fixed.fixed, fixed.decoder.pads_prompts = True, small  # prompts of small models in buffers, too
    # Smaller, then larger buffers.
    for seed, count, n, tokens in ((1, 5, 6, 12), (2, 2, 3, 5), (3, 7, 6, 20)):
        options: dict[str, Any] = dict(seed=seed, max_tokens=tokens, temperature=temperature)
        prompts = tiny.prompts(count, seed=seed)
        tiny.assert_same(dynamic.sample(prompts, n, **options), fixed.sample(prompts, n, **options))
    for other in (tiny.model(seed=9), tiny.model(seed=10)):
        dynamic.sync(other), fixed.sync(other)
        tiny.assert_same(*(s.sample(tiny.prompts(3), 2, seed=4, max_tokens=6) for s in (dynamic, fixed)))


@pytest.mark.parametrize("settings", [Settings(0.0, 1.0), Settings(1.0, 1.0), Settings(0.7, 0.9)])
def test_drawing_from_16_bit_logits_is_drawing_from_their_float32_values(settings):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(64, 300, generator=generator)).bfloat16()
    uniform = torch.rand(64, generator=generator)
    half, whole = draw(logits, uniform, settings), draw(logits.float(), uniform, settings)
    assert torch.equal(half[0], whole[0]) and half[1].dtype == torch.float32
    torch.testing.assert_close(half[1], whole[1], rtol=0, atol=0)


KERNEL = """
import sys, torch
from rlkit.samplers.decode_kernel import attend
case = torch.load(sys.argv[1])
torch.save((attend(**case), case["own"]), sys.argv[1])
"""


def case(heads: int, kv: int, d: int, step: int) -> dict[str, torch.Tensor]:
    """Five rows, the last of which is idle, of nine sequences of three prompts."""
    draw = torch.Generator().manual_seed(step)
    return {
        "qkv": torch.randn(5, heads + 2 * kv, d, generator=draw),
        "prompts": torch.randn(2, 3, kv, 70, d, generator=draw),
        "own": torch.randn(2, 10, kv, 80, d, generator=draw),
        "owner": torch.tensor([0, 3, 5, 8, 9]),
        "prompt": torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 0]),
        "lengths": torch.tensor([70, 3, 65]),
        "step": torch.tensor([step]),
    }


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
@pytest.mark.parametrize("shape", [(14, 2, 64, 0), (6, 6, 32, 1), (2, 2, 24, 64), (3, 1, 40, 79)])
def test_the_kernel_of_gpus_computes_the_same(shape, tmp_path):
    """Run by Triton's interpreter, which must be asked for before the kernel is loaded: in a process of its own."""
    given, file = case(*shape), tmp_path / "case.pt"
    torch.save(given, file)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", KERNEL, str(file)], env=environment, check=True)
    out, own = torch.load(file)
    expected = decode_attention(**given)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(own, given["own"])


def test_a_gpu_without_a_compiler_decodes_without_the_kernel_and_says_so(monkeypatch):
    monkeypatch.setattr(cache, "missing_compiler", lambda: "a C compiler")
    with pytest.warns(UserWarning, match="slower .* lacks a C compiler"):
        assert fastest_attention(torch.device("cuda")) is decode_attention
    assert fastest_attention(torch.device("cpu")) is decode_attention


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch without CUDA captures nothing")
def test_work_that_cannot_be_captured_is_done_as_it_is():
    work = Replayed(lambda: 5, torch.device("cuda"))
    assert work() == 5
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        assert work() == 5
    assert work() == 5
