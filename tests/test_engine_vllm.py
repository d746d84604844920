"""vLLM as the sampler, the real engine on the CPU: its log-probs, its weights after a sync, its stops."""

import numpy as np
import pytest
import torch
from vllm_on_cpu import keep_weights

pytestmark = pytest.mark.engines
pytest.importorskip("vllm")

from rlkit.config import Model  # noqa: E402
from rlkit.models.decoder import Decoder  # noqa: E402
from rlkit.models.loading import load_policy  # noqa: E402
from rlkit.samplers.vllm import VllmSampler  # noqa: E402
from rlkit.training.learner import Rows, text_batch, token_logprobs  # noqa: E402

PROMPTS = ["1+1=", "A much longer question than the other one?", "x"]


@pytest.fixture(scope="module")
def policy():
    return load_policy(Model(path="ladder-100k", lora_rank=4), seed=1)


@pytest.fixture(scope="module")
def sampler(policy):
    patch = keep_weights()
    yield VllmSampler(policy, max_num_seqs=16, max_model_len=128)
    patch.undo()


def prompts(policy) -> list[np.ndarray]:
    return [np.array(policy.encode_all([[{"role": "user", "content": p}]])[0]) for p in PROMPTS]


def gap(policy, groups, temperature=1.0) -> float:
    """Largest |Δ log p| between the engine's samples and the trainer's forward pass."""
    flat = [(p, s) for p, g in zip(prompts(policy), groups, strict=True) for s in g]
    batch = text_batch([p for p, _ in flat], [s.ids for _, s in flat], policy.pad_id)
    rows = Rows.of(batch, torch.arange(len(flat)))
    with torch.no_grad():
        ours, _ = token_logprobs(Decoder(policy.model), rows, temperature)
    theirs = np.concatenate([s.logprobs for _, s in flat])
    return float(np.abs(ours[rows.layout.present].numpy() - theirs).max())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_the_trainers_at_the_sampling_temperature(policy, sampler, temperature):
    groups = sampler.sample(prompts(policy), 4, seed=0, max_tokens=12, temperature=temperature)
    assert [len(g) for g in groups] == [4, 4, 4]
    assert gap(policy, groups, temperature) < 1e-3


def test_a_seed_repeats_and_a_group_is_diverse(policy, sampler):
    state = torch.random.get_rng_state()
    first, again, other = (sampler.sample(prompts(policy), 4, seed=s, max_tokens=8) for s in (5, 5, 6))
    ids = [[[x.ids.tolist() for x in g] for g in groups] for groups in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert all(len({tuple(x) for x in g}) == 4 for g in ids[0])
    assert torch.equal(state, torch.random.get_rng_state())  # the trainer's own randomness goes on


def test_groups_are_told_as_they_end(policy, sampler):
    told: list = []
    groups = sampler.sample(prompts(policy), 4, seed=3, max_tokens=12, on_finished=told.append)
    flat = [s for group in groups for s in group]
    assert len(told) == 3 and sorted(place for ended in told for place, _ in ended) == list(range(12))
    assert all(np.array_equal(ids, flat[place].ids) for ended in told for place, ids in ended)


def test_after_a_sync_the_engine_has_the_adapted_weights_and_the_base_is_untouched(policy, sampler):
    base = {n: p.clone() for n, p in policy.model.named_parameters() if "lora_" not in n}
    torch.manual_seed(0)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    stale = gap(policy, sampler.sample(prompts(policy), 4, seed=1, max_tokens=12))
    sampler.sync(policy.model)
    assert gap(policy, sampler.sample(prompts(policy), 4, seed=1, max_tokens=12)) < 1e-3 < stale
    assert all(torch.equal(p, base[n]) for n, p in policy.model.named_parameters() if n in base)


def test_a_stop_token_ends_a_response_and_belongs_to_it(policy, sampler):
    greedy = sampler.sample(prompts(policy), 1, seed=0, max_tokens=8, temperature=0)[0][0]
    assert greedy.finish_reason == "length" and len(greedy.ids) == 8
    stops = VllmSampler.__new__(VllmSampler)
    vars(stops).update(vars(sampler), stop_ids=(int(greedy.ids[2]),))
    cut = stops.sample(prompts(policy), 1, seed=0, max_tokens=8, temperature=0)[0][0]
    first = greedy.ids.tolist().index(int(greedy.ids[2]))
    assert cut.finish_reason == "stop" and cut.ids.tolist() == greedy.ids[: first + 1].tolist()
    assert cut.logprobs.shape == cut.ids.shape
