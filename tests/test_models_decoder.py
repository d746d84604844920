"""The shared-prompt forward pass against the models' own."""

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny
import torch
from huggingface_hub import HfApi
from live_bytes import LiveBytes
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig

import rlkit
from rlkit.config import Model, RunConfig
from rlkit.data.prompt_lengths import prompt_lengths
from rlkit.errors import UserError
from rlkit.models import kernels
from rlkit.models import logprobs as logprobs_module
from rlkit.models.attention import Layout, pad_right
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, compiled, kernels_for, missing_compiler
from rlkit.models.loading import load_policy
from rlkit.models.logprobs import SelectedLogProbs
from rlkit.models.shapes import COMPILED_FROM
from rlkit.training.learner import Rows, token_logprobs
from rlkit.types import Task
from rlkit.verl.weights import describe

NEEDS_COMPILER = pytest.mark.skipif(missing_compiler() is not None, reason="needs a C++ compiler")


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("chunk", [2**26, 17 * 8])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_selected_log_probs_entropy_and_gradients_equal_float64_softmax(monkeypatch, chunk, temperature, bonus):
    monkeypatch.setattr(logprobs_module, "CHUNK", chunk)  # the smaller one cuts 30 tokens into 4 chunks
    rng = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(30, 8, generator=rng), torch.randn(17, 8, generator=rng)
    targets, grad = torch.randint(0, 17, (30,), generator=rng), torch.randn(2, 30, generator=rng)
    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logprobs, entropy = SelectedLogProbs.apply(*ours, targets, temperature, EAGER, bonus)
    ((logprobs * grad[0]).sum() + (entropy * grad[1]).sum()).backward()
    exact = [hidden.double().requires_grad_(), weight.double().requires_grad_()]
    full = (exact[0] @ exact[1].t() / temperature).log_softmax(-1)
    selected, entropies = full.gather(1, targets[:, None])[:, 0], -(full.exp() * full).sum(-1)
    ((selected * grad[0]).sum() + (entropies * grad[1]).sum() * bonus).backward()
    torch.testing.assert_close(logprobs.double(), selected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), entropies, atol=1e-5, rtol=1e-5)
    for a, b in zip(ours, exact, strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad.double(), b.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_confident_token_survives_16_bits(monkeypatch, dtype, chunked, bonus):
    """p from .3 to .9999: what a token's state gets is 1 − p times something, and 1 − p must not be rounded away."""
    rng, (n, d, v) = torch.Generator().manual_seed(0), (512, 64, 2048)
    monkeypatch.setattr(logprobs_module, "CHUNK", 100 * v if chunked else n * v)
    weight = (torch.randn(v, d, generator=rng) * 0.5).to(dtype)
    targets = torch.randint(0, v, (n,), generator=rng)
    towards = torch.linspace(0.3, 1.3, n)[:, None] * weight[targets].float()
    hidden = (torch.randn(n, d, generator=rng) * 0.5 + towards).to(dtype).requires_grad_()
    logprobs, entropy = SelectedLogProbs.apply(hidden, weight, targets, 1.0, EAGER, bonus)
    (logprobs.sum() + 0.1 * entropy.sum() * bonus).backward()
    exact = hidden.detach().double().requires_grad_()
    full = (exact @ weight.double().t()).log_softmax(-1)
    selected = full.gather(1, targets[:, None])[:, 0]
    (selected.sum() - 0.1 * (full.exp() * full).sum() * bonus).backward()
    assert hidden.grad is not None and exact.grad is not None
    error = (hidden.grad.double() - exact.grad).norm(dim=1) / exact.grad.norm(dim=1)
    p = selected.exp().detach()
    for low, high in ((0, 0.5), (0.9, 0.97), (0.97, 0.99), (0.99, 0.997), (0.997, 0.9995), (0.9995, 0.9999)):
        among = error[(p >= low) & (p < high)]
        assert len(among) and among.max() < (2e-2 if bonus else 5e-3), (low, high)  # two terms cancel


def uneven(model):
    """Rows of unequal responses in groups of unequal size, out of order, and their losses in both passes."""
    prompts, rng = tiny.prompts(3), torch.Generator().manual_seed(6)
    ids, mask = pad_right(prompts, 0)
    index, lengths = torch.tensor([2, 0, 0, 1, 0, 2]), torch.tensor([1, 5, 2, 3, 4, 1])
    responses = torch.randint(1, tiny.VOCAB, (6, 5), generator=rng)
    present = torch.arange(5)[None] < lengths[:, None]
    rows = Rows(torch.arange(6), ids, responses, Layout(mask, index, present))
    weights = torch.randn(6, 5, generator=rng) * present
    answers = [(prompts[index[i]], responses[i, :n].numpy()) for i, n in enumerate(lengths)]
    return rows, weights, [tiny.reference_logprobs(model, *answer) for answer in answers]


@pytest.mark.parametrize(("family", "checkpointing", "adapter"), [
    *product(tiny.FAMILIES, (False, True), (False,)), ("qwen2", False, True),
])  # fmt: skip
def test_packed_rows_of_unequal_length_equal_the_models_own_forward(family, checkpointing, adapter):
    ours, theirs = (lora(tiny.model(family)) if adapter else tiny.model(family) for _ in range(2))
    rows, weights, own = uneven(theirs)
    logprobs, _ = token_logprobs(Decoder(ours, checkpointing=checkpointing), rows)
    merged, _ = token_logprobs(Decoder(ours, frozen=True), rows)
    torch.testing.assert_close(merged, logprobs, atol=1e-5, rtol=1e-5)
    for i, expected in enumerate(own):
        torch.testing.assert_close(logprobs[i, : len(expected)], expected, atol=1e-5, rtol=1e-5)
        assert not logprobs[i, len(expected) :].any()
    if adapter:  # which really does something
        with ours.disable_adapter():
            assert (token_logprobs(Decoder(ours), rows)[0] - logprobs).abs().max() > 0.01
    (logprobs * weights).sum().backward()
    torch.stack([(own[i] * weights[i, : len(own[i])]).sum() for i in range(6)]).sum().backward()
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        if a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad, atol=2e-5, rtol=1e-4, msg=name)


def test_the_ragged_places_are_each_responses_prompt_and_own_tokens():
    prompts, present = [[1, 1, 1], [1, 0, 0]], [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    layout = Layout(torch.tensor(prompts).bool(), torch.tensor([1, 0, 1]), torch.tensor(present).bool())
    # Packed: prompt 0 at 0-2, prompt 1 at 3; the inputs of response 0 at 4-5, of response 2 at 6.
    keys_at, of_prompts, (queries, keys, *longest) = layout.ragged
    assert keys_at.tolist() == [3, 4, 5, 3, 6] and of_prompts[0].tolist() == [0, 3, 4]
    assert of_prompts[2:] == (3, 3)
    assert queries.tolist() == [0, 2, 3] and keys.tolist() == [0, 3, 5] and longest == [2, 3]


def test_bfloat16_computes_over_float32_master_weights():
    model = tiny.model()
    rows, weights, _ = uneven(model)
    exact, _ = token_logprobs(Decoder(model), rows)
    model.compute_dtype = torch.bfloat16
    rough, _ = token_logprobs(Decoder(model), rows)
    (rough * weights).sum().backward()
    assert 1e-4 < (rough - exact).abs().mean() < 0.05  # bfloat16 was really used, and only bfloat16's error
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)


def lora(model):
    """With an adapter that is not zero, the same in every call."""
    torch.manual_seed(5)
    return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)).eval()


def test_an_architecture_that_is_not_computed_is_refused_by_name(tmp_path):
    MistralConfig().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"model.path '{tmp_path}' holds a 'mistral' model"):
        load_policy(Model(path=str(tmp_path)))


@NEEDS_COMPILER
@pytest.mark.slow(reason="compiles for half a minute")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_kernels_compute_what_the_eager_ones_do(monkeypatch, dtype):
    monkeypatch.setattr(logprobs_module, "CHUNK", 8 * tiny.VOCAB)  # in chunks too
    model, batch = tiny.model("qwen3"), tiny.batch([1, 9, 2, 7, 3, 9, 8, 1])

    def computed(decoder: Decoder, rows: Rows) -> torch.Tensor:
        """Log-probs, entropies and the gradient."""
        model.zero_grad()
        logprobs, entropy = token_logprobs(decoder, rows, 0.7)
        (logprobs * torch.arange(logprobs.numel()).view_as(logprobs)).sum().backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return torch.cat((logprobs.detach().flatten(), entropy.flatten(), *gradients))

    for some in (range(8), range(3, 6)):  # another shape, by the same kernels
        rows = Rows.of(batch, torch.tensor(list(some)))
        model.compute_dtype = None
        exact = computed(Decoder(model), rows)
        model.compute_dtype = getattr(torch, dtype)
        eager = computed(Decoder(model), rows)
        ours = computed(Decoder(model, checkpointing=True, kernels=compiled()), rows)
        assert not torch.equal(ours, eager)  # another way it was
        assert (ours - exact).norm() <= 1.2 * (eager - exact).norm() + 1e-5 * exact.norm()


@NEEDS_COMPILER
def test_compiled_kernels_round_where_the_samplers_do():
    gate_up = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    eager, once = (EAGER.swiglu(x).bfloat16() for x in (gate_up, gate_up.float()))
    assert torch.equal(compiled().swiglu(gate_up), eager) and not torch.equal(once, eager)


ASKS = {
    "to train": lambda: load_policy(Model(path="someone/nothing")),
    "for verl": lambda: describe(rlkit.load("params/verl_ladder.yaml", {"model.path": "someone/nothing"})),
    "for the lengths of prompts": lambda: prompt_lengths(
        RunConfig.model_validate({"model": {"path": "someone/nothing"}}), [Task.ask("math__x", "1+1", "2")]
    ),
}


@pytest.mark.parametrize("purpose", ASKS)
def test_a_hub_out_of_reach_is_asked_once_and_the_error_names_what_needs_none(purpose, monkeypatch, caplog):
    asked = []

    def unreachable(self, repo, **options):
        asked.append((repo, options["timeout"]))
        raise httpx.ConnectError("Name or service not known")

    monkeypatch.setattr(HfApi, "model_info", unreachable)
    said = r"is 'someone/nothing'.*ladder-30k …\), smollm2-135m-instruct, or a folder"
    with pytest.raises(UserError, match=said):
        ASKS[purpose]()
    assert asked == [("someone/nothing", 5.0)]
    assert not caplog.records


def test_kernels_are_compiled_where_that_is_possible_or_asked_for_in_vain(monkeypatch):
    monkeypatch.setattr(kernels, "missing_compiler", lambda: "a compiler")
    compiled.cache_clear()
    assert kernels_for(RunConfig.model_validate({}), True, COMPILED_FROM) is EAGER
    with pytest.raises(UserError, match=r"actor\.use_torch_compile is true, which needs a compiler"):
        kernels_for(RunConfig.model_validate({"actor": {"use_torch_compile": True}}), False, 1)


def test_a_gpu_without_what_triton_builds_with_is_told_of(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(kernels, "find_spec", lambda _: object())
    monkeypatch.setattr(shutil, "which", lambda name: name == "gcc")
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert missing_compiler() is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 1))
    assert missing_compiler() == "a GPU of compute capability 7.0 or above"
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert missing_compiler() == "Python's headers: apt-get install python3-dev"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert missing_compiler() == "a C compiler"


@pytest.mark.parametrize("adapter", [False, True])
def test_a_refresh_holds_one_layer_at_a_time_and_a_reference_holds_its_own_weights_alone(adapter):
    big: dict[str, Any] = dict(hidden_size=64, intermediate_size=512, num_hidden_layers=8, head_dim=16)
    model, other = tiny.model(**big), tiny.model(seed=1, **big)
    if adapter:
        model, other = lora(model), lora(other)
    frozen = Decoder(model, frozen=True)
    places = [t.data_ptr() for t in frozen.tensors()]
    mine = {t.untyped_storage().data_ptr() for t in frozen.tensors()}
    assert not mine & {p.untyped_storage().data_ptr() for p in model.parameters()}
    layer = sum(p.numel() * 4 for p in model.parameters()) / 8
    with LiveBytes(*frozen.tensors(), *other.parameters()) as live:
        before = live.now
        frozen.refresh(other)
    assert live.peak - before < 3 * layer and [t.data_ptr() for t in frozen.tensors()] == places
    for a, b in zip(frozen.tensors(), Decoder(other, frozen=True).tensors(), strict=True):
        assert torch.equal(a, b)
