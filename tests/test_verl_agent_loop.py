"""The agent loop, driven by a scripted server: the ids, masks and rewards of the local trainer's episodes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from test_environments_rollout import Script
from transformers import GenerationConfig

from rlkit.domains import sources
from rlkit.environments.base import environments
from rlkit.environments.mathematics import Mathematics
from rlkit.environments.rollout import Limits, environment_task, play_episodes
from rlkit.models.ladder import END, byte_tokenizer
from rlkit.models.prompts import encode_text
from rlkit.types import Task
from rlkit.verl.compute_score import PLACE, AnswerReader, UngradedAnswer

TOKENIZER = byte_tokenizer()
STOP: Any = TOKENIZER.convert_tokens_to_ids(END)


def said(text: str, ended: bool = True) -> list[int]:
    return [*encode_text(TOKENIZER, text), *([STOP] if ended else [])]


TEXTS = ("subtract_terms 7", "nonsense", "divide_coefficient 3", "state_answer 3")
MOVES = [said(text) for text in TEXTS]


class ScriptedServer:
    """Answers the turns of a script, with log-probs that count down, cut at max_tokens."""

    def __init__(self, turns: list[list[int]]) -> None:
        self.turns, self.calls = list(turns), []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_: Any):
        self.calls.append((list(prompt_ids), dict(sampling_params)))
        ids = self.turns.pop(0)[: sampling_params["max_tokens"]]
        logprobs = [-0.1 * (k + 1) for k in range(len(ids))]
        fields = {"global_steps": 4, "min_global_steps": 4, "max_global_steps": 4}
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, extra_fields=fields, num_preempted=0)


def equation(instructions: str = "brief") -> Task:
    world = {"kind": "mathematics", "instructions": instructions, "max_steps": 6}
    return environment_task(environments.parse(world), "3x + 7 = 16")


def run(task: Task, turns: list[list[int]], folder=None, length: int = 900, turn: int = 0, model: str = "/none"):
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from rlkit.verl.agent_loop import RlkitAgentLoop

    rollout = {"response_length": length, "prompt_length": 1024}
    served = {"rollout": rollout, "model": {"path": model}}
    config = OmegaConf.create({"actor_rollout_ref": served, "data": {}})

    async def go():
        server: Any = ScriptedServer(turns)
        loop = RlkitAgentLoop(
            trainer_config=DictConfigWrap(config), server_manager=server, tokenizer=TOKENIZER, processor=None,
            dataset_cls=RLHFDataset, data_config=DictConfigWrap(config.data), hf_model_type="qwen2", tools=None,
            max_turn_length=turn, answers=str(folder or ""),
        )  # fmt: skip
        row = task.to_row()
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
        told: Any = {"global_steps": 4, "uid": "u", "session_id": 2, "priority": np.int64(1)}
        return await loop.run(sampling, raw_prompt=row["prompt"], **told, **row), server

    return asyncio.run(go())


def local(task: Task, *texts: str, ended: bool):
    policy: Any = SimpleNamespace(tokenizer=TOKENIZER, stop_ids=(STOP,))
    sampler: Any = Script(policy, *texts, stop=ended)
    return play_episodes([task], sampler, policy, Limits(900))[0].rollout(task)


@pytest.mark.parametrize("ended", [True, False], ids=["turns end themselves", "turns are cut"])
@pytest.mark.parametrize("texts", [TEXTS, ("<|im_end|> subtract", "subtract_terms 7", *TEXTS[1:])])
def test_an_episode_is_the_local_one_token_for_token(ended, texts, tmp_path):
    """Also where an observation repeats the name of a control token."""
    task = equation("full")
    out, _ = run(task, [said(text, ended) for text in texts], tmp_path)
    expected = local(task, *texts, ended=ended)
    assert out.prompt_ids == expected.prompt_ids.tolist()
    assert out.response_ids == expected.response_ids.tolist()
    assert out.response_mask == expected.mask.tolist()
    np.testing.assert_allclose(np.array(out.response_logprobs), expected.logprobs, atol=1e-6)
    earned = 3.0 - (len(texts) - len(TEXTS))
    assert out.reward_score == sum(expected.turn_rewards or ()) == pytest.approx(earned)
    assert out.extra_fields["turn_scores"] == expected.turn_rewards
    assert out.extra_fields["reward_extra_info"] == {"score": earned, "correct": 1.0}


def test_an_episode_that_runs_out_of_room_ends_before_the_observation():
    full, _ = run(equation(), MOVES)
    first_observation = full.response_mask.index(0)
    out, _ = run(equation(), MOVES, length=first_observation + 3)
    assert out.response_mask == [1] * first_observation
    assert out.extra_fields[PLACE]["finish_reason"] == "length"
    assert out.reward_score == 2.0  # what the first move earned


def test_a_turn_is_cut_at_its_limit():
    _, server = run(equation(), MOVES, turn=30)
    assert [call[1]["max_tokens"] for call in server.calls] == [30] * 4


def test_an_answer_is_sampled_once_and_left_to_compute_score():
    task = sources.parse("arithmetic").task(0)
    out, server = run(task, [said("42")], length=16)
    assert server.calls[0][1]["max_tokens"] == 16 and server.calls[0][0] == out.prompt_ids
    assert out.response_ids == said("42") and out.response_mask == [1, 1, 1]
    assert out.reward_score is None
    assert out.extra_fields[PLACE] == {
        "step": 4, "split": "train", "uid": "u", "sample": 2, "task_id": task.id,
        "prompt_tokens": len(out.prompt_ids), "tokens": 3, "response_tokens": 3, "finish_reason": "stop", "turns": 1,
    }  # fmt: skip
    cut, _ = run(task, [said("4" * 40, ended=False)], length=16)
    assert len(cut.response_ids) == 16 and cut.extra_fields[PLACE]["finish_reason"] == "length"


def test_any_stop_token_of_the_generation_config_ends_an_answer(tmp_path):
    other: Any = TOKENIZER.pad_token_id
    GenerationConfig(eos_token_id=[STOP, other]).save_pretrained(tmp_path)
    answer = [*said("42", ended=False), other]
    finished = [
        run(sources.parse("arithmetic").task(0), [answer], length=3, model=m)[0] for m in ("/none", str(tmp_path))
    ]
    assert [out.extra_fields[PLACE]["finish_reason"] for out in finished] == ["length", "stop"]


def test_what_verl_stores_of_an_episode_has_its_return_on_the_last_token():
    stored = run(equation(), MOVES)[0].as_dict()
    assert stored["rm_scores"].sum() == stored["rm_scores"][-1] == 3.0
    assert stored["response_mask"][-1] == 1


def test_a_defect_of_the_environment_drops_the_episode_and_is_told(tmp_path, monkeypatch):
    def broken(self, action, params):
        raise ZeroDivisionError("no such world")

    monkeypatch.setattr(Mathematics, "act", broken)
    with pytest.raises(UngradedAnswer, match="ZeroDivisionError: no such world"):
        run(equation(), MOVES, tmp_path)
    reader = AnswerReader(tmp_path)
    reader.poll()
    (row,) = reader.take(4, "train")
    assert row["value"] is None and "no such world" in row["error"]
