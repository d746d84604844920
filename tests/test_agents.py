"""Offline training: which tokens weigh what, the trainer's four steps, and the metrics of episodes."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import cases
from transformers import LlamaConfig, LlamaForCausalLM

import rlkit
from rlkit.agents import BaseAgent, ExpertAgent, NoisyAgent, RandomAgent, run_episodes
from rlkit.agents.trainer import AgenticConfig, AgenticTrainer, named_model
from rlkit.config import Model, Optimizer, RunConfig
from rlkit.environments import Trajectory, Transition
from rlkit.environments.mathematics import Mathematics
from rlkit.errors import UserError
from rlkit.measures.episodes import action_table, episode_metrics, metrics_text, transition_counts
from rlkit.models.ladder import byte_tokenizer
from rlkit.models.loading import load_policy
from rlkit.params import validate
from rlkit.training.export import export, open_saved

ENV = Mathematics(instructions="brief", families=("linear",))


def episode(*rewards: float, success: bool = True, problem: int = 0) -> Trajectory:
    steps = [Transition("s", "distribute", {}, "distribute", r, "s", r > -1) for r in rewards]
    told = ({"role": "user", "content": "s"},)
    return Trajectory("mathematics", {"n": problem}, told, steps, success=success)


def test_weights_are_the_softmax_of_standardised_returns():
    returns = np.array([2.0, 4.0, -1.0])
    trainer = AgenticTrainer("ladder-30k", ENV, AgenticConfig(temperature=0.5))
    data = trainer.prepare_training_data([episode(1.0, 1.0), episode(4.0), episode(-1.0)])
    weights = np.array([e.weights.max() for e in data])
    assert weights / weights[1] == pytest.approx(np.exp((returns - 4) / (0.5 * returns.std())))


def test_only_action_tokens_weigh_and_their_mean_weight_is_one():
    trainer = AgenticTrainer("ladder-30k", ENV)
    episodes = run_episodes(NoisyAgent(ExpertAgent(), 0.4), ENV, ENV.problems("train", 20))
    data = trainer.prepare_training_data(episodes)
    weights = np.concatenate([e.weights for e in data])
    assert weights[weights > 0].mean() == pytest.approx(1.0)
    tokenizer = trainer.policy.tokenizer
    text = tokenizer.decode(data[0].response_ids[data[0].weights > 0])
    assert isinstance(text, str)
    assert text.split("<|im_end|>")[:-1] == [t.text for t in episodes[0].transitions]


@pytest.mark.parametrize(("call", "words"), cases("agents_wrong_arguments"))
def test_a_wrong_argument_is_one_sentence(call, words):
    with pytest.raises(UserError, match=words):
        eval(call)


def test_nothing_to_train_on_or_a_loss_that_is_no_number_is_one_sentence():
    far = AgenticConfig(optim=Optimizer(lr=1e30, clip_grad=0), epochs=9)
    trainer = AgenticTrainer("ladder-30k", ENV, far)
    assert trainer.test_inference([]) == []
    data = trainer.prepare_training_data([episode(1.0)])
    with pytest.raises(UserError, match=r"The loss is (nan|inf) at step \d+: lower optim.lr"):
        trainer.train(data)


def test_episodes_that_are_too_long_are_left_out_and_counted():
    trainer = AgenticTrainer("ladder-30k", ENV, AgenticConfig(max_length=120))
    long, short = [episode(*[1.0] * 20), episode(1.0)]
    assert len(trainer.prepare_training_data([long, short])) == 1 and trainer.left_out == 1
    with pytest.raises(UserError, match="max_length 120"):
        trainer.prepare_training_data([long])


def test_the_loss_is_the_weighted_mean_over_action_tokens_of_the_whole_batch():
    trainer = AgenticTrainer("ladder-30k", ENV)
    episodes = run_episodes(NoisyAgent(ExpertAgent(), 0.4), ENV, ENV.problems("train", 6))
    data = trainer.prepare_training_data(episodes)
    model, total, tokens = trainer.policy.model, 0.0, 0
    for e in data:
        ids = torch.from_numpy(np.concatenate([e.prompt_ids, e.response_ids]))[None]
        logits = model(ids).logits[0, len(e.prompt_ids) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(-1, torch.from_numpy(e.response_ids)[:, None])[:, 0]
        total += float(-(logprobs.detach() * torch.from_numpy(e.weights)).sum())
        tokens += int((e.weights > 0).sum())
    assert trainer.train(data).first_loss == pytest.approx(total / tokens, rel=1e-4)


def test_training_lowers_the_loss_repeats_exactly_and_can_be_saved(tmp_path):
    episodes = run_episodes(NoisyAgent(ExpertAgent(), 0.2), ENV, ENV.problems("train", 48))
    limits = {"max_response_length": 60, "max_turn_length": 20}
    config = AgenticConfig(epochs=2, batch_size=16, optim=Optimizer(lr=5e-3), **limits)
    trainer, other = (AgenticTrainer("ladder-30k", ENV, config, seed=3) for _ in range(2))
    first, second = (t.train(t.prepare_training_data(episodes)) for t in (trainer, other))
    assert first.losses == second.losses and len(first.losses) == 6
    assert first.loss_reduction > 0.2
    again = AgenticTrainer(str(trainer.save(tmp_path / "model")), ENV, config)
    assert again.model == named_model(again.model.path, again.device)  # with the small adapter
    again.model = Model.model_validate({"path": again.model.path})
    problems = ENV.problems("test", 3)
    assert again.test_inference(problems) == trainer.test_inference(problems)


def test_a_loaded_policy_trains_as_the_section_that_it_was_loaded_from():
    section = Model(path="ladder-30k", lora_rank=4, lora_dropout=0.2)
    episodes = run_episodes(ExpertAgent(), ENV, ENV.problems("train", 24))
    trainers = [AgenticTrainer(m, ENV, AgenticConfig(epochs=2)) for m in (section, load_policy(section))]
    named, loaded = (t.train(t.prepare_training_data(episodes)).losses for t in trainers)
    assert named == loaded


def test_a_name_alone_means_an_adapter_over_bfloat16_on_a_gpu(tmp_path, monkeypatch):
    on_gpu, on_cpu = named_model("some/model", "cuda"), named_model("some/model", "cpu")
    assert (on_gpu.dtype, on_gpu.lora_rank, on_cpu.dtype) == ("bfloat16", 8, "float32")
    assert (on_cpu.lora_alpha, on_cpu.lora_dropout) == (16, 0.1)
    assert tuple(on_cpu.target_modules) == ("q_proj", "v_proj")
    ladder = named_model("ladder-30k", "cuda")
    assert (ladder.dtype, ladder.lora_rank) == ("float32", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ladder-mine").mkdir()
    assert named_model("ladder-mine", "cpu").lora_rank == 8  # a folder that only sounds like a ladder size


def test_agents_differ_as_they_should_and_repeat():
    problems = ENV.problems("train", 40)
    expert, noisy, random = (
        run_episodes(agent, ENV, problems, seed=4)
        for agent in (ExpertAgent(), NoisyAgent(ExpertAgent(), 0.3), RandomAgent())
    )
    returns = [np.mean([e.total_reward for e in group]) for group in (expert, noisy, random)]
    assert returns[0] == 8.5 and returns[0] > returns[1] > returns[2]
    assert run_episodes(NoisyAgent(ExpertAgent(), 0.3), ENV, problems, seed=4) == noisy
    assert run_episodes(NoisyAgent(ExpertAgent(), 0.3), ENV, problems, seed=5) != noisy
    actions = [t.action for e in noisy for t in e.transitions]
    off = np.mean([t.reward < 0 for e in noisy for t in e.transitions])
    assert len(set(actions)) > 5 and 0.1 < off < 0.35


def test_noise_may_surround_an_agent_that_waits():
    class Waiting(BaseAgent):
        async def select_action(self, state, valid_actions):
            await asyncio.sleep(0)
            return state.environment.expert()

    (calm,) = run_episodes(NoisyAgent(Waiting(), 0.0), ENV, ["3x + 7 = 16"])
    assert calm.success


def test_episode_metrics_against_hand_computed_ones():
    problems = [{"n": 0}, {"n": 1}]
    good, bad = episode(2.0, 3.0), episode(-1.0, -0.5, 2.0, success=False, problem=1)
    expert = [episode(2.0, 3.0), episode(2.0, 3.0, problem=1)]
    assert [e.problem for e in expert] == problems
    table = episode_metrics({"model": [good, bad]}, expert)
    value = table.set_index("metric")["value"]
    assert value["success"] == 0.5 and value["return"] == pytest.approx((5 + 0.5) / 2)
    assert value["wasted_actions"] == 1.0 and value["valid_actions"] == pytest.approx((1 + 2 / 3) / 2)
    assert value["optimality_gap"] == pytest.approx((0 + 0.9) / 2)
    assert value["structure"] == 1.0
    assert (table["low"] <= table["high"]).all()
    assert "0.500 [" in str(metrics_text(table).loc["success", "model"])
    costly = [episode(-1.0), episode(-1.0, problem=1)]
    assert "optimality_gap" not in episode_metrics({"expert": costly}, costly)["metric"].tolist()
    with pytest.raises(UserError, match="same list"):
        episode_metrics({"model": [bad, good]}, expert)


def test_intervals_know_that_episodes_of_one_problem_are_alike():
    apart = [episode(float(i % 2), problem=i) for i in range(40)]
    alike = [episode(float(i % 2), problem=i % 2) for i in range(40)]  # two problems, twenty times each
    spans = [episode_metrics({"x": group}).set_index("metric") for group in (apart, alike)]
    values, lows, highs = ([float(t[name]["return"]) for t in spans] for name in ("value", "low", "high"))
    assert values == [0.5, 0.5] and (lows[1], highs[1]) == (0, 1) and highs[0] - lows[0] < 0.4


def test_a_share_of_none_or_all_is_not_certain():
    wrong = [episode(-1.0, success=False, problem=i) for i in range(4)]
    table = episode_metrics({"x": wrong}).set_index("metric")[["value", "low", "high"]]
    found = {metric: tuple(row) for metric, row in zip(table.index, table.to_numpy(), strict=True)}
    assert found["success"] == pytest.approx((0.0, 0.0, 0.602), abs=5e-4)
    assert found["completed"] == pytest.approx((1.0, 0.398, 1.0), abs=5e-4)
    assert found["return"] == (-1.0, -1.0, -1.0)  # no share: its spread is its own


def test_tables_of_actions():
    expert = run_episodes(ExpertAgent(), ENV, ["3x + 7 = 16", "3x - 7 = 2"])
    table = action_table(expert)
    assert list(table.loc["divide_terms"]) == [2, 1.0, 2.0, 2.0, 2.0]
    counts = transition_counts(expert, list(ENV.actions))
    assert counts.loc["start", "identify_operation"] == 2 and counts.loc["state_answer", "end"] == 2
    assert counts.loc["identify_operation", "add_terms"] == 1 and counts.to_numpy().sum() == 10


def test_the_environment_is_that_of_the_trajectories_unless_one_is_given():
    episodes = run_episodes(ExpertAgent(), ENV, ENV.problems("train", 4))
    trainer = rlkit.AgenticTrainer("ladder-30k", config=AgenticConfig(max_response_length=40))
    trainer.prepare_training_data(episodes)
    assert trainer.environment == ENV  # its options too: a brief prompt stays brief
    assert trainer.test_inference(["3x + 7 = 16"])[0].world == ENV
    named = AgenticTrainer(Path("ladder-30k"), "mathematics")  # a path is a folder, a name an environment
    assert named.model == Model(path="ladder-30k") and named.environment == Mathematics()
    assert run_episodes(ExpertAgent(), "mathematics", ["3x = 9"])[0].success


@pytest.mark.filterwarnings("ignore:step")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_folder_of_ones_own_is_trained_offline_and_online_by_an_adapter_in_bfloat16(tmp_path, device):
    """A Hugging Face folder with random weights, a tokenizer and a chat template."""
    tokenizer: Any = byte_tokenizer()
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        bos_token_id=None, eos_token_id=int(tokenizer.eos_token_id), pad_token_id=int(tokenizer.pad_token_id),
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(shape).save_pretrained(tmp_path / "own")
    tokenizer.save_pretrained(tmp_path / "own")
    section = named_model(str(tmp_path / "own"), "cuda")
    world = Mathematics(families=("linear",), max_steps=3, instructions="brief")
    episodes = run_episodes(NoisyAgent(ExpertAgent(), 0.2), world, world.problems("train", 64))
    config = AgenticConfig(epochs=2, batch_size=16, max_response_length=40, max_turn_length=4)
    trainer = AgenticTrainer(section, world, config, device=device)
    result = trainer.train(trainer.prepare_training_data(episodes))
    assert result.last_loss < result.first_loss and len(result.losses) == 8
    sizes = [(p.requires_grad, p.numel()) for p in trainer.policy.model.parameters()]
    assert 0 < sum(n for trains, n in sizes if trains) < 0.1 * sum(n for _, n in sizes)
    folder = trainer.save(tmp_path / "offline")
    saved = open_saved(folder)
    assert saved.environments["mathematics"].model_dump() == world.model_dump()
    assert saved.max_turn_length == 4  # as `rlkit serve` then has it
    run = rlkit.train(validate(RunConfig, {
        "model": section.model_dump(mode="json") | {"path": str(folder)},
        "data": {"train": [{"kind": "environment", "environment": world.model_dump(mode="json")}],
                 "train_batch_size": 2, "max_prompt_length": 256, "max_response_length": 40},
        "rollout": {"n": 2, "max_turn_length": 4},
        "trainer": {"total_training_steps": 1, "device": device}, "evaluation": {"size": 2, "n": 1},
    }), root=tmp_path, progress=False)  # fmt: skip
    assert run.status == "finished"
    assert open_saved(export(run.folder, tmp_path / "exported")).max_turn_length == 4
    policy = open_saved(run.folder, device).policy
    assert policy.dtype == trainer.policy.dtype == torch.bfloat16
    assert len(AgenticTrainer(policy, world, config, device=device).test_inference(["3x + 7 = 16"])) == 1
