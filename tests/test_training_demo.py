"""The demonstration: its plan, a model folder that people bring, and what a second call does again."""

import json
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import load
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.models.tokenizer import byte_tokenizer
from rlkit.training import agentic, agentic_demo
from rlkit.training.agentic import named_model
from rlkit.training.agentic_demo import MathDemo, math_demo
from rlkit.training.export import open_saved

SMALL = {"episodes": 12, "online_steps": 1, "problems": 2}


@pytest.fixture
def llama(tmp_path):
    """A Hugging Face folder with random weights, a tokenizer and a chat template."""
    tokenizer: Any = byte_tokenizer()
    folder = tmp_path / "my-llama"
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        bos_token_id=None, eos_token_id=int(tokenizer.eos_token_id), pad_token_id=int(tokenizer.pad_token_id),
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_plan_says_what_would_be_done_and_does_none_of_it(tmp_path):
    done = CliRunner().invoke(
        app, ["demo", "math", "--dry-run", "--episodes", "100", "--root", str(tmp_path)]
    )
    assert done.exit_code == 0 and not list(tmp_path.iterdir())
    assert "ladder-100k on cpu in float32; all weights train" in done.output
    assert (
        "16 steps of 32 episodes" in done.output and "60 steps of 16 problems, 8 episodes each" in done.output
    )
    with pytest.raises(UserError, match="no such folder"):
        MathDemo(model="./nowhere").plan()


def test_a_pretrained_model_gets_an_adapter_and_on_a_gpu_bfloat16_and_large_passes():
    demo = MathDemo(model="some/model")
    on_gpu, on_cpu = demo.online("folder", "cuda", 300), demo.online("folder", "cpu", 300)
    assert (on_gpu.model.dtype, on_gpu.model.lora_rank, on_gpu.actor.micro_batch_tokens) == (
        "bfloat16",
        8,
        16_384,
    )
    assert (on_cpu.model.dtype, on_cpu.model.lora_rank, on_cpu.actor.micro_batch_tokens) == (
        "float32",
        8,
        4096,
    )
    assert on_gpu.max_logprob_gap > on_cpu.max_logprob_gap
    assert on_gpu.data.max_prompt_length == 300 and on_gpu.model.path == "folder"
    assert demo.environment.instructions == "full"
    ladder = MathDemo().online("folder", "cpu", 60)
    assert ladder.model.lora_rank == 0 and ladder.data.max_prompt_length == 256


@pytest.mark.parametrize("settings", [{"episodes": 0}, {"problems": 1}, {"nosie": 0.1}, {"noise": 2}])
def test_settings_that_make_no_sense_are_refused_before_anything_is_loaded(settings, tmp_path):
    with pytest.raises(UserError, match=next(iter(settings))):
        math_demo(root=tmp_path, **settings)
    assert not list(tmp_path.iterdir())


def small_world(monkeypatch) -> Mathematics:
    """The demonstration with short prompts, turns and episodes."""
    environment = Mathematics(families=("linear",), max_steps=3, instructions="brief")
    monkeypatch.setattr(MathDemo, "environment", property(lambda _: environment))
    monkeypatch.setattr(agentic_demo, "TURN", 4)
    return environment


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_in_bfloat16_the_adapter_learns_and_every_model_computes_in_it(llama, tmp_path, monkeypatch, device):
    small_world(monkeypatch)

    def on_gpu(path: str, _: str):
        return named_model(path, "cuda")

    for module in (agentic, agentic_demo):
        monkeypatch.setattr(module, "device_of", lambda _: device)
        monkeypatch.setattr(module, "named_model", on_gpu)
    settings: dict[str, Any] = {**SMALL, "episodes": 320, "model": str(llama)}
    result = math_demo(root=tmp_path, say=lambda _: None, **settings)
    assert result.training.last_loss < result.training.first_loss and len(result.training.losses) == 20
    assert result.run is not None and result.run.status == "finished"
    assert load(result.run.folder / "config.yaml").model.dtype == "bfloat16"
    online = MathDemo(**settings).folder(tmp_path) / "online"
    assert agentic_demo._saved(MathDemo(**settings), online).setup_model().dtype == torch.bfloat16
    assert open_saved(result.run.folder).policy.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:step")
def test_a_folder_of_ones_own_goes_the_whole_way_and_is_not_trained_twice(llama, tmp_path, monkeypatch):
    environment = small_world(monkeypatch)
    said: list[str] = []
    root = tmp_path / "out"
    settings: dict[str, Any] = {**SMALL, "model": str(llama)}
    result = math_demo(root=root, say=said.append, **settings)
    assert set(result.table["group"]) == {
        "before", "offline", "offline sampled", "online", "online sampled", "expert",
    }  # fmt: skip
    assert 0 < result.training.parameters_trained < 0.1 * result.training.parameters_total
    assert result.run is not None and result.run.status == "finished"
    folder = MathDemo(**settings).folder(root)
    for name in ("offline", "online"):  # each can be served as it was trained
        saved = open_saved(folder / name).environments["mathematics"]
        assert saved.model_dump() == environment.model_dump()
    kept = json.loads((folder / "training.json").read_text())
    monkeypatch.setattr(agentic_demo.AgenticTrainer, "train", None)  # is not called again
    again = math_demo(root=root, say=said.append, **settings)
    assert again.training == result.training and again.training.losses == kept["losses"]
    assert again.run is not None and again.run.folder == result.run.folder
    assert again.table.equals(result.table)
    assert any("was trained on them before" in line for line in said)
    assert "(done before)" in MathDemo(**settings).plan(root)
