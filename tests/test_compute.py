"""The FLOPs ledger against torch's own counter."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import tiny
import torch
from cases import table
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from rlkit.compute import Ledger, Shape, Work
from rlkit.models.decoder import Decoder
from rlkit.samplers.torch import TorchSampler
from rlkit.training.loop import learn
from rlkit.training.update import Learning
from rlkit.types import Rollout, Task


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """torch's counter of the FLOPs of matrix products and attention, which is sent through plain products, which the
    counter sees, instead of a fused kernel."""
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with plain, FlopCounterMode(display=False) as counter:
        yield counter


def test_a_rollout_is_counted_within_two_percent_of_its_dense_kernels():
    model, prompts = tiny.model(), [np.arange(1, 8)] * 3
    sampler = TorchSampler(model, stop_ids=())
    with counting() as counter:
        sampler.sample(prompts, 4, seed=0, max_tokens=6)
    p, s, b, t = 3, 7, 12, 6
    decoded = sum(s + k for k in range(1, t))  # keys seen by each of the t - 1 tokens that are fed back
    work = Work(tokens=p * s + b * (t - 1), pairs=p * s * s + b * decoded, heads=b * t)
    assert Shape.of(model).forward(work) == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_work_counts_visible_keys_and_each_prompt_once():
    work = Work.of([3], [(3, 1), (3, 4)])
    assert work.tokens == 3 + 0 + 3
    assert work.heads == 1 + 4
    assert work.pairs == (1 + 2 + 3) + (4 + 5 + 6)  # prompt causal, then three fed-back tokens


def test_a_ledger_counts_every_sequence_with_its_own_prompt_and_survives_a_checkpoint():
    shape, ledger, copy = Shape.of(tiny.model()), Ledger(), Ledger()
    assert shape.non_embedding == sum(p.numel() for p in tiny.model().parameters()) - 40 * 32
    prompt, response = np.zeros(50, np.int64), np.ones(25, np.int64)
    rollout = Rollout(Task.ask("toy", "q", "a"), prompt, response, response, -response, "stop")
    assert ledger.sampled(shape, [rollout] * 2, 2) == 150
    ledger.add("update", 5.0)
    ledger.optimizer_steps = 3
    copy.load_state_dict(ledger.state_dict())
    copy.add("update", 1.0)
    assert copy.train_6nt == 6 * shape.non_embedding * 150
    assert copy.metrics()["compute/update_flops"] == 6.0 == copy.total - copy.flops["rollout"]
    assert copy.metrics()["training/optimizer_steps"] == 3


class CountedLedger(Ledger):
    """A ledger that notes beside each phase what torch's counter has seen of it."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter, self.seen, self.counted = counter, 0.0, {}

    def add(self, phase: str, flops: float) -> None:
        super().add(phase, flops)
        total = self.counter.get_total_flops()
        self.counted[phase] = self.counted.get(phase, 0.0) + total - self.seen
        self.seen = total


@pytest.mark.parametrize(*table("compute_steps"), ids=str)
def test_every_phase_of_a_step_is_counted_within_two_percent(changes):
    """Wide layers and short sequences, where what dense attention computes behind the mask is under a percent."""
    base = {"data": {"train_batch_size": 4, "max_response_length": 8}, "rollout": {"n": 2}}
    c = tiny.configured(base, **changes)
    big: dict = dict(vocab_size=400, hidden_size=256, intermediate_size=512, num_attention_heads=4, head_dim=64)
    model, reference = tiny.model(**big), Decoder(tiny.model(seed=1, **big), frozen=True)
    if c.model.lora_rank:
        model = get_peft_model(model, LoraConfig(r=c.model.lora_rank, target_modules="all-linear"))
    batch = tiny.batch([8] * 8, prompt_length=6)
    batch.baselines = torch.zeros(8)
    kl = c.actor.use_kl_loss or c.algorithm.use_kl_in_reward
    with counting() as counter:
        learning = Learning(c, tiny.policy(model), ledger := CountedLedger(counter))
        learning.reference = reference if kl else None
        learn(learning, batch, step=1)
    assert ledger.flops["update"] > 0 and (ledger.flops["critic"] > 0) is c.algorithm.needs.critic
    assert (ledger.flops["ref"] > 0) is kl
    for phase, counted in ledger.counted.items():
        assert ledger.flops[phase] == pytest.approx(counted, rel=0.02), phase
