"""The shared-prompt forward pass against the models' own."""

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig

from rlkit.errors import UserError
from rlkit.models.decoder import Decoder, SelectedLogProbs
from rlkit.samplers.torch import pad_right


def padded(prompts, group):
    ids, mask = pad_right(prompts, 0)
    return ids, mask, torch.arange(len(prompts)).repeat_interleave(group)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("family", list(tiny.FAMILIES))
def test_logits_equal_the_models_own_with_prompts_of_unequal_length(family, frozen):
    model, prompts = tiny.model(family), tiny.prompts(4)
    responses = torch.randint(1, tiny.VOCAB, (12, 6), generator=torch.Generator().manual_seed(1))
    ids, mask, index = padded(prompts, 3)
    assert not bool(mask.all())  # some prompt really is padded
    decoder = Decoder(model, frozen=frozen)
    logits = decoder.head(decoder.hidden(ids, mask, index, responses))
    for row in range(12):
        prompt = torch.from_numpy(prompts[index[row]])
        own = model(torch.cat((prompt, responses[row]))[None]).logits[0, len(prompt) - 1 : -1]
        torch.testing.assert_close(logits[row], own, atol=1e-5, rtol=1e-5)


def test_a_certain_token_has_log_prob_zero_at_its_own_place():
    """An off-by-one in the logits window would move it."""
    model, prompt = tiny.model(), tiny.prompts(1)[0]
    response = torch.tensor([[3, 11, 7, 5]])
    own = model(torch.cat((torch.from_numpy(prompt), response[0]))[None]).logits[0]
    response[0, 2] = own[len(prompt) + 1].argmax()  # what the state after the second response token predicts
    ids, mask, index = padded([prompt], 1)
    decoder = Decoder(model, frozen=True)
    logits = (
        decoder.head(decoder.hidden(ids, mask, index, response))[0] * 1e4
    )  # the likeliest becomes certain
    logprobs, _ = SelectedLogProbs.apply(logits, response[0])
    assert logprobs[2] == pytest.approx(0.0, abs=1e-6)
    assert (logprobs[[0, 1, 3]] < -1).all()


def test_padding_behind_a_response_changes_nothing_before_it():
    model, prompts = tiny.model(), tiny.prompts(2)
    ids, mask, index = padded(prompts, 1)
    short = torch.randint(1, tiny.VOCAB, (2, 4), generator=torch.Generator().manual_seed(2))
    long = torch.cat((short, torch.zeros(2, 5, dtype=torch.long)), 1)
    decoder = Decoder(model)
    torch.testing.assert_close(
        decoder.hidden(ids, mask, index, short), decoder.hidden(ids, mask, index, long)[:, :4]
    )


@pytest.mark.parametrize("pads", [0, 7, 31])
def test_padding_behind_a_prompt_changes_nothing(pads):
    model, prompt = tiny.model(), tiny.prompts(1)[0]
    ids = torch.from_numpy(np.concatenate([prompt, np.zeros(pads, np.int64)]))[None]
    mask = torch.arange(len(ids[0]))[None] < len(prompt)
    response = torch.tensor([[4, 9, 2]])
    decoder = Decoder(model)
    logits = decoder.head(decoder.hidden(ids, mask, torch.tensor([0]), response))[0]
    own = model(torch.cat((torch.from_numpy(prompt), response[0]))[None]).logits[0, len(prompt) - 1 : -1]
    torch.testing.assert_close(logits, own, atol=1e-5, rtol=1e-5)


def test_gradients_equal_those_of_the_models_own_forward():
    prompts = tiny.prompts(3)
    responses = torch.randint(1, tiny.VOCAB, (6, 5), generator=torch.Generator().manual_seed(3))
    weights = torch.randn(6, 5, generator=torch.Generator().manual_seed(4))
    ids, mask, index = padded(prompts, 2)
    ours, theirs = tiny.model(), tiny.model()
    decoder = Decoder(ours)
    flat = decoder.head(decoder.hidden(ids, mask, index, responses)).flatten(0, 1)
    (SelectedLogProbs.apply(flat, responses.flatten())[0] * weights.flatten()).sum().backward()
    own = [tiny.reference_logprobs(theirs, prompts[index[i]], responses[i].numpy()) for i in range(6)]
    (torch.stack(own) * weights).sum().backward()
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=2e-5, rtol=1e-4, msg=name)


def test_selected_log_probs_and_entropy_equal_float64_softmax():
    logits = torch.randn(30, 17, generator=torch.Generator().manual_seed(0)).double()
    targets = torch.randint(0, 17, (30,), generator=torch.Generator().manual_seed(1))
    logprobs, entropy = SelectedLogProbs.apply(logits.float(), targets)
    exact = logits.log_softmax(-1)
    torch.testing.assert_close(
        logprobs.double(), exact.gather(1, targets[:, None])[:, 0], atol=1e-6, rtol=1e-6
    )
    torch.testing.assert_close(entropy.double(), -(exact.exp() * exact).sum(-1), atol=1e-6, rtol=1e-6)


def lora(model):
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    torch.manual_seed(5)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return adapted.eval()


def test_a_frozen_copy_merges_the_adapter_and_leaves_the_base_weights_alone():
    adapted = lora(tiny.model())
    before = {n: p.clone() for n, p in adapted.named_parameters() if "lora_" not in n}
    ids, mask, index = padded(tiny.prompts(3), 2)
    responses = torch.randint(1, tiny.VOCAB, (6, 5), generator=torch.Generator().manual_seed(3))
    live = Decoder(adapted)
    for _ in range(100):
        copy = Decoder(adapted, frozen=True)
    expected = live.head(live.hidden(ids, mask, index, responses))
    torch.testing.assert_close(
        copy.head(copy.hidden(ids, mask, index, responses)), expected, atol=1e-5, rtol=1e-5
    )
    with adapted.disable_adapter():
        plain = live.head(live.hidden(ids, mask, index, responses))
    assert (plain - expected).abs().max() > 0.01  # the adapter really does something
    for name, parameter in adapted.named_parameters():
        if name in before:
            assert torch.equal(parameter, before[name]), name


def test_an_architecture_that_is_not_computed_is_refused_by_name():
    from transformers import MistralForCausalLM

    shape: dict[str, Any] = {k: v for k, v in tiny.SHAPE.items() if k != "tie_word_embeddings"}
    config = MistralConfig(**shape)
    with pytest.raises(UserError, match="'mistral' model"):
        Decoder(MistralForCausalLM(config))
