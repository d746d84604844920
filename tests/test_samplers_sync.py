"""A thousand syncs: the sampler has the adapted weights, and the base weights are the bits that they were. And what of
vLLM's engine sleeps when."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from rlkit.config import Model
from rlkit.errors import UserError
from rlkit.models.decoder import Decoder
from rlkit.models.loading import load_policy
from rlkit.samplers import vllm
from rlkit.samplers.torch import TorchSampler


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_thousand_syncs_leave_the_base_weights_bit_identical_and_the_sampler_exact(device, dtype):
    model, generator = tiny.adapted(dtype).to(device), torch.Generator().manual_seed(0)
    adapters = [p for n, p in model.named_parameters() if "lora_" in n]
    base = {n: p.clone() for n, p in model.named_parameters() if "lora_" not in n}
    sampler = TorchSampler(model, stop_ids=(3,))
    before = [t.clone() for t in sampler.decoder.tensors()]
    for _ in range(1000):
        with torch.no_grad():
            for p in adapters:
                p.add_(torch.randn(p.shape, generator=generator).to(p.device), alpha=1e-2)
        sampler.sync(model)
    now = dict(model.named_parameters())
    assert len(base) > 20 and all(torch.equal(now[n], p) for n, p in base.items())
    # Merged anew from the base each time: nothing adds up.
    anew = Decoder(model, frozen=True).tensors()
    assert all(torch.equal(a, b) for a, b in zip(sampler.decoder.tensors(), anew, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(before, sampler.decoder.tensors(), strict=True))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    # Until the next sync it keeps its own.
    assert all(torch.equal(a, b) for a, b in zip(sampler.decoder.tensors(), anew, strict=True))


class Engine:
    """vLLM's engine as far as it sleeps: 0.24 fails to bring back memory that is there, and to read what is not; and it
    takes memory from the card, where torch's allocator keeps what was freed until its cache is emptied."""

    kept, started = False, False
    free = 20 * 2**30

    def __init__(self, **_) -> None:
        assert not Engine.started, "CuMem allocator can only be used for one instance per process."
        self.awake, self.busy, Engine.started = {"weights", "kv_cache"}, False, True
        self.llm_engine, self.asked = self, []

    def sleep(self, level: int) -> None:
        if len(self.awake) < 2:
            return  # with a warning
        self.awake = set()
        Engine.free += 30 * 2**30

    def wake_up(self, tags: list[str] | None = None) -> None:
        if Engine.kept:
            raise RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:163")
        for tag in tags or ("weights", "kv_cache"):
            if tag in self.awake:
                raise RuntimeError("CUDA Error: invalid argument at cumem_allocator.cpp:169")
            self.awake.add(tag)

    def enqueue(self, requests, parameters, **_) -> list[str]:
        assert self.awake == {"weights", "kv_cache"}
        self.asked, self.n = [str(7 + i) for i in range(len(requests))], parameters["n"]
        return [f"{name}-a1b2c3d4" for name in self.asked]

    def has_unfinished_requests(self) -> bool:
        return bool(self.asked)

    def step(self) -> list:
        """The last request ends; its samples are its name and their number, the last one first."""
        name = int(self.asked.pop())

        def sample(j: int) -> SimpleNamespace:
            held = SimpleNamespace(logprobs=[-1.0, -2.0], token_ids=[name, j], start_indices=[0, 1])
            return SimpleNamespace(index=j, token_ids=[name, j], logprobs=held, finish_reason="stop")

        return [SimpleNamespace(request_id=str(name), outputs=[sample(j) for j in reversed(range(self.n))])]

    def apply_model(self, load) -> None:
        assert "weights" in self.awake

    def reset_prefix_cache(self) -> bool:
        return not self.busy


@pytest.fixture
def sampler(monkeypatch) -> vllm.VllmSampler:
    """Over an `Engine` that sleeps, as a large model's does on a GPU."""
    parameters = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=0))
    module = SimpleNamespace(LLM=Engine, SamplingParams=dict, sampling_params=parameters)
    monkeypatch.setattr(vllm, "import_vllm", lambda: module)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: setattr(Engine, "kept", False))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (Engine.free, 80 * 2**30))
    monkeypatch.setattr(Engine, "kept", False)
    monkeypatch.setattr(Engine, "started", False)
    monkeypatch.setattr(Engine, "free", Engine.free)
    made = vllm.VllmSampler(load_policy(Model(path="ladder-10k", lora_rank=4)), max_num_seqs=4, max_model_len=32)
    made.sleeps = True
    return made


def test_an_engine_that_sleeps_during_the_update_is_woken_part_by_part(sampler):
    policy, prompt = tiny.adapted(), [np.array([1, 2])]
    for _ in range(2):
        sampler.sample(prompt, 2, seed=0, max_tokens=4)
        sampler.release()
        sampler.release()
        assert sampler.engine.awake == set()
        Engine.kept = True  # what the update's passes left
        sampler.sync(policy)
        assert sampler.engine.awake == {"weights"}  # nothing is cached before it is read
        sampler.sync(policy)
        Engine.kept = True  # what merging left
    sampler.sample(prompt, 2, seed=0, max_tokens=4)
    sampler.release()
    sampler.sample(prompt, 2, seed=0, max_tokens=4)  # an evaluation in which nothing was learnt
    sampler.sync(policy)
    sampler.release()
    sampler.sync(policy)
    sampler.release()  # with the weights there, and no cache
    assert sampler.engine.awake == set()


def test_a_group_is_told_when_it_has_ended_and_all_come_in_order(sampler):
    told, prompts = [], [np.array([1, 2])] * 3
    groups = sampler.sample(prompts, 2, seed=0, max_tokens=4, on_finished=told.append)
    assert [[s.ids.tolist() for s in group] for group in groups] == [[[7 + i, 0], [7 + i, 1]] for i in range(3)]
    assert [[place for place, _ in ended] for ended in told] == [[4, 5], [2, 3], [0, 1]]
    flat = [s for group in groups for s in group]
    assert all(np.array_equal(ids, flat[place].ids) for ended in told for place, ids in ended)


def test_a_cache_that_vllm_keeps_under_new_weights_ends_the_run(sampler):
    sampler.engine.busy = True  # a request still holds blocks: vLLM says so by its answer alone
    with pytest.raises(RuntimeError, match="under the old weights"):
        sampler.sync(tiny.adapted())


def test_a_second_engine_that_sleeps_in_one_process_is_one_sentence(sampler):
    said = r"rollout.name is 'vllm', but this process .* in a process of its own"
    with pytest.raises(UserError, match=said):
        vllm.VllmSampler(load_policy(Model(path="ladder-10k")), max_num_seqs=4, max_model_len=32)


def test_a_run_that_shares_a_card_has_the_memory_of_its_engine_while_that_sleeps(monkeypatch, sampler):
    """torch refuses what is above its share of the card, and counts an engine that sleeps as if it were there."""
    shares: list[float] = []
    monkeypatch.setenv("RLKIT_GPU_MEMORY", str(40 * 2**30))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    sampler.release()
    assert shares == [(40 + 30) / 80]
    sampler.sync(tiny.adapted())
    sampler.sample([np.array([1, 2])], 1, seed=0, max_tokens=2)
    assert shares[-1] == 40 / 80


def test_a_seed_is_that_of_either_of_vllms_model_runners():
    """V1 draws from torch's generators; V2, which 0.24 takes for Llama and Qwen3, draws a request's seed by numpy."""

    def drawn(seed: int) -> tuple[float, int]:
        with vllm.seeded(seed, torch.device("cpu")):
            return float(torch.rand(())), int(np.random.randint(-(2**63), 2**63 - 1))

    def uniform() -> tuple[float, float]:
        return float(torch.rand(())), float(np.random.rand())

    states = torch.random.get_rng_state(), np.random.get_state()
    expected = uniform()
    torch.random.set_rng_state(states[0])
    np.random.set_state(states[1])
    first, again, other = drawn(2**62 + 5), drawn(2**62 + 5), drawn(6)
    assert first == again and not set(first) & set(other)
    # The trainer's own randomness goes on.
    assert expected == (float(torch.rand(())), float(np.random.rand()))
