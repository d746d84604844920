"""Multi-turn rollouts: ids are only appended, and they are the chat template's own rendering."""

import threading
from typing import ClassVar

import numpy as np
import pytest

from rlkit.agents import ExpertAgent, run_episodes
from rlkit.agents.trainer import encode
from rlkit.config import Model
from rlkit.domains import sources
from rlkit.environments import ActionResult, BaseEnvironment, Transition, environments
from rlkit.environments.mathematics import Mathematics
from rlkit.environments.rollout import ChatTokens, Limits, environment_task, play_episodes, rollout_metrics
from rlkit.errors import UserError
from rlkit.models.loading import load_policy
from rlkit.models.prompts import encode_text
from rlkit.samplers.torch import TorchSampler
from rlkit.seeds import derive
from rlkit.types import Sample

GENEROUS = Limits(max_response_length=600, max_turn_length=60)


@pytest.fixture(scope="module")
def policy():
    return load_policy(Model.model_validate({"path": "ladder-30k"}))


class Script:
    """A sampler that says given texts, one a turn, each with a stop token; it counts its calls."""

    def __init__(self, policy, *turns: str, stop: bool = True) -> None:
        self.policy, self.turns, self.stop, self.calls = policy, turns, stop, []

    def sample(self, prompts, n, *, seed, max_tokens, **_):
        text = self.turns[min(len(self.calls), len(self.turns) - 1)]
        self.calls.append((len(prompts), n, seed))
        ids = encode_text(self.policy.tokenizer, text) + [self.policy.tokenizer.eos_token_id] * self.stop
        ids = np.array(ids[:max_tokens])
        finish = "stop" if self.stop else "length"
        logprobs = -0.1 * np.arange(1, len(ids) + 1, dtype=np.float32)
        return [[Sample(ids, logprobs, finish) for _ in range(n)] for _ in prompts]

    def sync(self, policy) -> None: ...

    def release(self) -> None: ...


SOLVE = ("identify_operation subtract_terms", "subtract_terms 7", "divide_terms 3", "state_answer 3")


def solve_script(policy):
    return Script(policy, *SOLVE)


def test_appended_turns_are_the_templates_own_rendering(policy):
    task = environment_task(Mathematics(), "3x + 7 = 16")
    (episode,) = play_episodes([task], solve_script(policy), policy, GENEROUS)
    messages = list(task.prompt)
    for step in episode.episode.transitions:
        said, seen = {"role": "assistant", "content": step.text}, {"role": "user", "content": step.next_state}
        messages += [said, seen]
    whole = policy.tokenizer.apply_chat_template(messages[:-1], tokenize=True, return_dict=False)
    mine = episode.context
    assert mine.tolist() == whole[: len(mine)]
    assert policy.tokenizer.decode(whole[len(mine) :]) == "\n"  # the template's line end after the last turn


class Spy(TorchSampler):
    """Keeps what every call was given and what it returned."""

    calls: list

    def sample(self, prompts, n, **options):
        result = super().sample(prompts, n, **options)
        self.calls.append([(prompt, s) for prompt, group in zip(prompts, result, strict=True) for s in group])
        return result


def test_training_ids_are_the_sampled_ids(policy):
    spy = Spy(policy.model, policy.stop_ids, policy.pad_id)
    spy.calls = []
    env = Mathematics(instructions="brief")
    tasks = [environment_task(env, p) for p in env.problems("train", 3)]
    episodes = play_episodes(tasks, spy, policy, Limits(120, 20), n=2, seed=5)
    doubled = (task for task in tasks for _ in range(2))
    rollouts = [e.rollout(task) for e, task in zip(episodes, doubled, strict=True)]
    assert len(spy.calls) == 4 and all(len(call) == 6 for call in spy.calls)
    for i, r in enumerate(rollouts):
        sampled = np.concatenate([call[i][1].ids for call in spy.calls])
        kept = int(r.mask.sum())  # the last turn may be cut at the episode's limit
        assert r.response_ids[r.mask == 1].tolist() == sampled[:kept].tolist() and kept > len(sampled) - 20
        for before, after in zip(spy.calls, spy.calls[1:], strict=False):
            so_far = np.concatenate([before[i][0], before[i][1].ids])
            assert after[i][0][: len(so_far)].tolist() == so_far.tolist()  # extended, never rewritten
        drawn = np.concatenate([call[i][1].logprobs for call in spy.calls])
        assert r.logprobs[r.mask == 1].tolist() == drawn[:kept].tolist() and not r.logprobs[r.mask == 0].any()
        assert len(r.response_ids) <= 120 and r.mask[-1] == 1


def test_a_rollout_carries_each_turns_reward_and_masks_observations(policy):
    task = environment_task(Mathematics(instructions="brief"), "3x + 7 = 16")
    r = play_episodes([task], solve_script(policy), policy, GENEROUS)[0].rollout(task)
    assert r.turn_rewards == [1.5, 2.0, 2.0, 3.0] and r.turns == 4 and r.finish_reason == "done"
    assert r.reward is not None and (r.reward.value, r.reward.correct) == (8.5, True)
    spans = np.flatnonzero(np.diff(np.concatenate([[0], r.mask, [0]])))
    texts = [policy.tokenizer.decode(r.response_ids[a:b]) for a, b in spans.reshape(-1, 2)]
    assert texts == [t + "<|im_end|>" for t in SOLVE]
    assert rollout_metrics([r])["environment/steps"] == 4


def test_one_sampler_call_a_turn_for_all_that_live(policy):
    script = solve_script(policy)
    tasks = [environment_task(Mathematics(), p) for p in ("3x + 7 = 16", "3x + 7 = 19", "5x + 7 = 27")]
    episodes = play_episodes(tasks, script, policy, GENEROUS, n=4, seed=1)
    assert [c[:2] for c in script.calls] == [(3, 4), (12, 1), (12, 1), (12, 1)]
    assert len({c[2] for c in script.calls}) == 4 and script.calls[1][2] == derive(1, "turn", 1)
    assert [e.episode.problem for e in episodes] == [t.ground_truth for t in tasks for _ in range(4)]
    assert [e.episode.success for e in episodes] == [True] * 4 + [False] * 8


def test_a_turn_that_was_cut_is_closed_by_the_template(policy):
    task = environment_task(Mathematics(instructions="brief"), "3x + 7 = 16")
    script = Script(policy, "subtract_terms 7", stop=False)
    r = play_episodes([task], script, policy, Limits(60, 16))[0].rollout(task)
    end = policy.tokenizer.eos_token_id
    assert r.response_ids[16] == end and r.mask[16] == 0 and r.mask[:16].all()


def test_an_episode_without_room_ends_on_a_token_of_the_policy(policy):
    task = environment_task(Mathematics(instructions="brief"), "3x + 7 = 16")
    r = play_episodes([task], solve_script(policy), policy, Limits(40))[0].rollout(task)
    assert r.finish_reason == "length" and r.mask.all() and len(r.response_ids) == 34
    assert r.reward is not None and (r.reward.value, r.reward.correct) == (1.5, False)
    assert r.reward.parts["truncated"]


def test_a_failing_environment_is_an_error_and_never_a_zero(policy, monkeypatch):
    monkeypatch.setattr(Mathematics, "act", lambda *_: 1 / 0)
    task = environment_task(Mathematics(instructions="brief"), "3x + 7 = 16")
    (episode,) = play_episodes([task], solve_script(policy), policy, GENEROUS)
    r = episode.rollout(task)
    assert r.finish_reason == "error" and r.reward is not None and r.reward.value is None
    assert "ZeroDivisionError: division by zero (test_environments_rollout.py, line " in str(r.reward.error)
    with pytest.raises(UserError, match="ZeroDivisionError"):
        episode.episode.trajectory()


class Meeting(BaseEnvironment):
    """A slow world: a step waits until another episode's step is under way, too, and the last one ends."""

    slow = True
    together: ClassVar[threading.Barrier] = threading.Barrier(4, timeout=20)

    def get_valid_actions(self) -> list[str]:
        return ["wait"]

    def reset(self, problem):
        self.number = problem

    def step(self, action, params=None) -> ActionResult:
        self.together.wait()
        return ActionResult(f"met {self.number}", float(self.number), params == "3", {"success": True})


def test_slow_environments_step_side_by_side_and_their_results_keep_their_order(policy):
    env = Meeting()
    tasks = [environment_task(env, {"problem": number}) for number in range(4)]
    script = Script(policy, "wait 1", "wait 2", "wait 3")
    played = play_episodes(tasks, script, policy, GENEROUS, environment=env)
    assert [e.episode.error for e in played] == [None] * 4 and len(script.calls) == 3
    assert [[t.reward for t in e.episode.transitions] for e in played] == [[float(k)] * 3 for k in range(4)]
    assert [e.episode.observation for e in played] == [f"met {k}" for k in range(4)]


def test_episodes_of_a_model_and_of_an_expert_who_say_the_same_are_the_same(policy):
    env = Mathematics()
    (expert,) = run_episodes(ExpertAgent(), env, ["3x + 7 = 16"])
    example, task = encode(ChatTokens(policy), expert), environment_task(env, "3x + 7 = 16")
    (mine,) = play_episodes([task], solve_script(policy), policy, GENEROUS)
    r, trajectory = mine.rollout(task), mine.episode.trajectory()
    assert example.prompt_ids.tolist() == r.prompt_ids.tolist()
    assert example.response_ids.tolist() == r.response_ids.tolist()
    assert (example.weights > 0).tolist() == r.mask.astype(bool).tolist()
    assert trajectory.transitions == expert.transitions and isinstance(trajectory.transitions[0], Transition)
    assert trajectory.success and trajectory.solution == "3"


def test_a_template_whose_turn_ends_in_no_stop_token_is_refused(policy):
    class Other:
        tokenizer, stop_ids = policy.tokenizer, (5,)

    with pytest.raises(UserError, match="eos_token"):
        ChatTokens(Other()).follow("x", 1)


def test_tasks_of_an_environment_are_a_source(policy):
    brief = {"kind": "mathematics", "instructions": "brief"}
    source = sources.parse({"kind": "environment", "environment": brief})
    task = source.task(3)
    assert task == source.task(3) and task.id != source.task(4).id
    assert environments.parse(dict(task.extra_info["environment"])).instructions == "brief"
    assert task.data_source == "environment__mathematics" and task.prompt[-1]["role"] == "user"
    env = source.environment
    assert {env.split_of(source.task(i).ground_truth) for i in range(100)} == {"train"}
    held_out = [env.split_of(p) for p in env.problems("test", 20)]
    assert held_out == ["test"] * 20
    assert play_episodes([task], solve_script(policy), policy, GENEROUS)[0].rollout(task).turns >= 1
