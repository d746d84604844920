"""Checkpoints are whole or not there, and what is exported of them computes what the run's own policy does."""

import json
import os
from math import isfinite

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlkit.backends import train
from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.models.loading import load_policy, save_model
from rlkit.params import validate
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import read_jsonl
from rlkit.training import checkpoint
from rlkit.training.export import ENVIRONMENTS_FILE, export, open_saved
from rlkit.training.warm_start import warm_start

ACTING = [{"kind": "environment", "environment": {"kind": "mathematics", "instructions": "brief"}}]


def trained(root, rank: int, sources=None):
    content = {
        "model": {"path": "ladder-30k", "lora_rank": rank, "warm_start": {"steps": 2, "batch_size": 16}},
        "data": {"train": sources or [{"kind": "arithmetic"}], "train_batch_size": 8, "max_response_length": 40},
        "rollout": {"max_turn_length": 20 if sources else 0},
        "algorithm": {"adv_estimator": "turn_gae" if sources else "grpo"},
        "actor": {"optim": {"lr": 0.05}, "entropy_coeff": 1.0},
        "trainer": {"total_training_steps": 2, "num_threads": 1, "save_freq": 1, "test_freq": 0, "device": "cpu"},
        "evaluation": {"size": 4, "n": 1},
    }  # fmt: skip
    return train(validate(RunConfig, content), root=root, progress=False).folder


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A run with an adapter; its entropy bonus moves the adapter though no answer is right."""
    return trained(tmp_path_factory.mktemp("adapted"), 4)


def logits(model) -> torch.Tensor:
    ids = torch.arange(1, 41).view(2, 20)
    with torch.no_grad():
        return model(input_ids=ids).logits.float()


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize("rank", [0, 4])
def test_the_merged_folder_is_the_policy(rank, adapted, tmp_path):
    run = adapted if rank else trained(tmp_path / "out", 0, ACTING)
    folder = export(run, tmp_path / "model")
    ours = logits(open_saved(run).policy.model)
    merged = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(logits(merged), ours, atol=1e-5)
    assert type(merged).__name__ == "Qwen2ForCausalLM" and (folder / "model.safetensors").exists()
    chat = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [{"role": "user", "content": "1+1"}], tokenize=False, add_generation_prompt=True
    )
    assert "1+1" in str(chat)
    assert (folder / "adapter").exists() == bool(rank)
    if not rank:
        last = list(read_jsonl(run / "metrics.jsonl"))[-1]
        assert last["training/turns"] == last["training/environment_steps"] >= 2 * 64
        assert last["environment/turns/max"] == 2 and last["environment/truncated"] == 1.0
        assert isfinite(last["actor/grad_norm"])
        kept = json.loads((folder / ENVIRONMENTS_FILE).read_text())
        assert kept["mathematics"]["instructions"] == "brief"
        assert open_saved(folder).environments["mathematics"].instructions == "brief"
    with pytest.raises(UserError, match="not empty"):
        export(run, folder)


@pytest.mark.filterwarnings("ignore:step")
def test_the_adapter_on_its_base_is_the_policy_and_changes_it(adapted, tmp_path):
    from peft import PeftModel

    folder, config = export(adapted, tmp_path / "model"), load(adapted / "config.yaml")
    started = warm_start(config)
    assert started is not None
    plain = config.model.model_copy(update={"lora_rank": 0})
    base = load_policy(plain, path=started.folder).model
    before, ours = logits(base), logits(open_saved(adapted).policy.model)
    assert not torch.allclose(before, ours, atol=1e-3)
    assert torch.allclose(logits(PeftModel.from_pretrained(base, str(folder / "adapter"))), ours, atol=1e-5)


def test_a_folder_named_model_below_some_config_is_no_checkpoint_of_a_run(tmp_path):
    (tmp_path / "config.yaml").write_text("of: something else")
    policy = load_policy(validate(RunConfig, {"model": {"path": "ladder-10k"}}).model)
    save_model(policy, tmp_path / "model")
    assert torch.equal(logits(open_saved(tmp_path / "model").policy.model), logits(policy.model))


def test_a_policy_is_not_exported_into_the_folder_that_it_comes_from(tmp_path):
    model = export("ladder-10k", tmp_path / "model")
    with pytest.raises(UserError, match="model/sub lies in .*model, which is exported: give a folder outside"):
        export(model, model / "sub")
    assert not (model / "sub").exists()


def write(content: str):
    def writer(folder):
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(content * 1000)
        (folder / "state.pt").write_text(content)

    return writer


def test_the_newest_k_are_kept_and_one_that_was_passed_over_goes_and_not_the_new_one(tmp_path):
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, step, write(str(step)), keep=2)
    assert checkpoint_steps(tmp_path) == [10, 15]
    assert checkpoint.newest(tmp_path, pytest.fail) == 15
    assert (checkpoint.folder_of(tmp_path, 15) / "state.pt").read_text() == "15"
    checkpoint.save(tmp_path, 12, write("y"), keep=1)
    assert checkpoint_steps(tmp_path) == [12]


DAMAGES = {
    "truncated": lambda folder: os.truncate(folder / "model" / "weights", 10),
    "other bytes": lambda folder: (folder / "model" / "weights").write_text("y" + "x" * 999),
    "deleted": lambda folder: (folder / "model" / "weights").unlink(),
    "manifest": lambda folder: (folder / checkpoint.MANIFEST).write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_newest_falls_back_to_the_one_before_and_says_so(tmp_path, damage):
    for step in (5, 10):
        checkpoint.save(tmp_path, step, write("x"), keep=3)
    DAMAGES[damage](checkpoint.folder_of(tmp_path, 10))
    said = []
    assert checkpoint.newest(tmp_path, said.append) == 5
    assert len(said) == 1 and "step 10 is broken" in said[0]


def test_a_writer_that_dies_leaves_the_others_and_no_half(tmp_path):
    checkpoint.save(tmp_path, 5, write("x"), keep=2)

    def dies(folder):
        (folder / "state.pt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 10, dies, keep=2)
    assert checkpoint_steps(tmp_path) == [5]
    checkpoint.save(tmp_path, 15, write("y"), keep=2)  # and the next save sweeps the half away
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_000005", "step_000015"]
