"""Predicted bytes against the tensors that are alive: on the CPU for ladder models, on `meta` for large shapes."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from cases import table
from live_bytes import LiveBytes
from transformers import AutoModelForCausalLM, Qwen2Config

from rlkit.compute import Ledger, Shape
from rlkit.config import RunConfig
from rlkit.models.attention import Layout, ragged_attention
from rlkit.models.decoder import Decoder
from rlkit.models.ladder import parameter_counts
from rlkit.models.loading import add_lora, load_policy
from rlkit.models.logprobs import SelectedLogProbs
from rlkit.models.shapes import shape_of
from rlkit.sizing.devices import device_named
from rlkit.sizing.memory import Plan, logits, memory, pass_parts, total, trainer_held
from rlkit.training.learner import Rows, text_batch, token_logprobs
from rlkit.training.loop import learn
from rlkit.training.update import Learning

WITHIN = 0.15


BASE = {
    "model": {"path": "ladder-300k", "warm_start": {"kind": "none"}},
    "data": {"train_batch_size": 8, "max_response_length": 32}, "rollout": {"n": 4},
    "actor": {"micro_batch_tokens": 10**9},
}  # fmt: skip
config = partial(tiny.configured, BASE)


def measured_update(c: RunConfig) -> int:
    """Most bytes alive in a run's second update: model, moments, critic, gradients, activations."""
    policy = load_policy(c.model)
    learning = Learning(c, policy, Ledger())
    critic, count = learning.critic, c.data.train_batch_size * c.rollout.n

    def batch():
        return tiny.batch([32] * count, c.rollout.n, prompt_length=12)

    learn(learning, batch(), 1)
    optimizers = [learning.actor.stepper.optimizer, *([critic.stepper.optimizer] if critic else [])]
    moments = [t for o in optimizers for s in o.state.values() for t in s.values() if t.dim()]
    second, own = batch(), list(critic.module.parameters()) if critic else []
    with LiveBytes(*policy.model.parameters(), *policy.model.buffers(), *own, *moments) as live:
        learn(learning, second, 2)
    return live.peak


@pytest.mark.parametrize(*table("updates_measured"))
@pytest.mark.parametrize("micro_batch", [10**9, 256])
def test_the_update_of_a_ladder_model_takes_the_predicted_bytes(changes, micro_batch):
    c = config(actor__micro_batch_tokens=micro_batch, **changes)
    predicted = memory(Plan(c, device_named("cpu"), (12, 32)))
    held = total(predicted, "update") - predicted["held"]["sampler's weights"]
    assert held == pytest.approx(measured_update(c), rel=WITHIN)


def meta_model(name: str, c: RunConfig) -> Any:
    s = shape_of(name)
    hf = Qwen2Config(
        vocab_size=s.vocab, hidden_size=s.hidden, intermediate_size=s.intermediate, num_hidden_layers=s.layers,
        num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, tie_word_embeddings=s.tied,
    )  # fmt: skip
    with torch.device("meta"):
        if c.model.lora_rank:
            return add_lora(AutoModelForCausalLM.from_config(hf, dtype=torch.bfloat16), c.model, 0)
        model: Any = AutoModelForCausalLM.from_config(hf, dtype=torch.float32)
        model.compute_dtype = torch.bfloat16
        return model


def meta_layout(p: Plan) -> Layout:
    """The layout of a full pass on `meta`, where what depends on data cannot be computed: taken from the CPU."""
    mask = torch.ones(p.prompts, p.prompt, dtype=torch.bool)
    index = torch.arange(p.sequences) // (p.sequences // p.prompts)
    real = Layout(mask, index, torch.ones(p.sequences, p.response, dtype=torch.bool))
    layout = Layout(mask.to("meta"), index.to("meta"), real.present.to("meta"))
    keys_at, *pairs = real.ragged
    moved = {name: getattr(real, name).to("meta") for name in ("lengths", "last", "positions")}
    lengths = ((queries.to("meta"), keys.to("meta"), *most) for queries, keys, *most in pairs)
    vars(layout).update(moved, prompt_tokens=real.prompt_tokens, ragged=(keys_at.to("meta"), *lengths))
    return layout


def measured_pass(model: Any, checkpointing: bool, p: Plan) -> int:
    """Most bytes alive in one forward and backward pass over the variable-length kernel, weights included."""
    layout, decoder = meta_layout(p), Decoder(model, checkpointing=checkpointing)
    ids = torch.empty(p.tokens, dtype=torch.long, device="meta")
    targets = torch.empty(p.sequences * p.response, dtype=torch.long, device="meta")
    with LiveBytes(*model.parameters()) as live:
        turns = decoder.turns(layout.positions)
        hidden = decoder.run(ids, turns, lambda _, qkv: ragged_attention(qkv, layout, decoder.heads))
        first = hidden[layout.last].index_select(0, layout.index)
        states = torch.cat((first, hidden[layout.prompt_tokens :]))
        del hidden, first
        logprobs, _ = SelectedLogProbs.apply(states, decoder.head_weight, targets, 1.0)
        del states
        logprobs.sum().backward()
    return live.peak


@pytest.mark.parametrize(*table("passes_measured"))
def test_a_pass_of_a_large_shape_takes_the_predicted_bytes(name, rank, checkpointing):
    c = config(
        model__dtype="bfloat16", model__lora_rank=rank, model__enable_gradient_checkpointing=checkpointing,
        data__train_batch_size=2, rollout__n=8,
    )  # fmt: skip
    c = c.model_copy(update={"model": c.model.model_copy(update={"path": name})})
    p = Plan(c, device_named("cpu"), (32, 512))
    p.ragged = True  # no CUDA kernel, but its attention
    gradients, embedding = 4 * p.trained, 4 * p.shape.vocab * p.shape.hidden * (not rank)
    predicted = trainer_held(p)["weights"] + max(sum(pass_parts(p).values()), gradients + embedding)
    assert predicted == pytest.approx(measured_pass(meta_model(name, c), checkpointing, p), rel=WITHIN)


@pytest.mark.parametrize("path", ["ladder-10k", "ladder-1m", "ladder-30m"])
@pytest.mark.parametrize("rank", [0, 4])
def test_shapes_count_the_parameters_of_the_models(path, rank):
    c, shape = config(model__path=path, model__lora_rank=rank), shape_of(path)
    counts = parameter_counts(load_policy(c.model).model)
    plan = Plan(c, device_named("cpu"))
    assert shape.parameters == counts["parameters_total"]
    assert shape.non_embedding == counts["parameters_non_embedding"]
    assert plan.trained == counts["parameters_trainable"]


@pytest.mark.parametrize(*table("model_cards"))
def test_published_shapes_have_the_parameters_of_their_model_cards(path, parameters):
    assert shape_of(path).parameters == parameters


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "v_proj"), ("layers.0.mlp.up_proj",)])
def test_every_adapter_that_is_accepted_gets_a_gradient(targets):
    c = config(model__path="ladder-30k", model__lora_rank=4, model__target_modules=targets)
    policy = load_policy(c.model)
    batch = text_batch([np.arange(3)] * 2, [np.arange(5)] * 2, policy.pad_id)
    logprobs, _ = token_logprobs(Decoder(policy.model), Rows.of(batch, torch.arange(2)))
    logprobs.sum().backward()
    ups = [p for n, p in policy.model.named_parameters() if "lora_B" in n]
    assert ups and all(p.grad is not None and p.grad.abs().max() > 0 for p in ups)
    assert 0 < Plan(c, device_named("cpu")).trained < shape_of("ladder-30k").parameters  # adapters alone


@pytest.mark.parametrize("vocab, hidden", [(16_000, 32), (4000, 512)])
def test_the_log_probs_of_verl_hold_what_is_planned_whatever_the_tokens(vocab, hidden):
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    shape = Shape(layers=1, hidden=hidden, intermediate=1, heads=1, kv_heads=1, head_dim=1, vocab=vocab)
    c = config(trainer__backend="verl", model__dtype="bfloat16")
    plan = Plan(c, device_named("h100"), (12, 32))
    plan.shape = shape
    planned = logits(plan)
    weight = torch.randn(vocab, hidden, dtype=torch.bfloat16, requires_grad=True)
    for tokens in (1024, 2048):
        states = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.randint(0, vocab, (1, tokens))
        with LiveBytes(states, weight, targets) as live:
            logprobs, _ = FusedLinearForPPO()(states, weight, targets, temperature=0.7)
            live.peak = before = live.now
            logprobs.sum().backward()
        assert live.peak - before == pytest.approx(planned, rel=0.1)
