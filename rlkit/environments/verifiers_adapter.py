"""verifiers' MultiTurnEnv (`pip install "verifiers<0.4"`) both ways: its environments here, and ours as one of it."""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from rlkit.environments.base import ActionResult, BaseEnvironment, Params, Problem, environments
from rlkit.environments.episode import Episode
from rlkit.environments.textarena_adapter import WholeAnswers
from rlkit.errors import UserError
from rlkit.types import Message


@environments.register("verifiers")
class FromVerifiers(WholeAnswers):
    """An environment of verifiers that needs no tool calls. A whole answer of the model is its action. A problem is a
    row of its training data. The rubric's reward comes with the last step."""

    actions: ClassVar[dict[str, str]] = {"answer": "its value is the answer as the task asks for it"}
    multiline: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    kind: Literal["verifiers"] = "verifiers"
    id: str
    """The name under which verifiers.load_environment finds it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its load_environment."""
    success_reward: float = 1.0
    """Reward from which an episode is a success; what is less is partial credit."""

    _chat: list[Any] = PrivateAttr(default_factory=list)  # verifiers' messages before the next answer

    def model_post_init(self, context: Any) -> None:
        try:
            _load(self.id, json.dumps(self.options))
        except Exception as error:  # whatever the package of the environment raises
            raise UserError(f"environment.id is {self.id!r}, which does not load here: {error}") from None

    def messages(self, observation: str) -> tuple[Message, ...]:
        return tuple({"role": m.role, "content": str(m.content)} for m in self._chat)

    def problem(self, rng) -> Problem:
        return {"row": int(rng.integers(len(_load(self.id, json.dumps(self.options)).get_dataset())))}

    def begin(self, problem: Problem) -> str:
        from verifiers.types import ClientConfig

        env, row = _load(self.id, json.dumps(self.options)), int(problem["row"])
        state = _await(env.init_state(dict(env.get_dataset()[row]), ClientConfig(), "rlkit"))
        if state["tool_defs"]:
            raise UserError(f"environment.id is {self.id!r}, which needs tool calls: use one of texts alone.")
        for name in ("client", "usage", "usage_tracker"):  # no model is asked; what is left can be copied
            state.pop(name, None)
        self._chat, self._state = [], _await(env.setup_state(state)) or state
        return self._heard(env).observation

    def act(self, action: str, params: Params) -> ActionResult:
        from verifiers.types import Response, ResponseMessage

        env, text = _load(self.id, json.dumps(self.options)), str(params.get("value", ""))
        said = ResponseMessage(content=text, finish_reason="stop", is_truncated=False)
        response = Response(id="", created=0, model="rlkit", message=said)
        _await(env.add_model_response(self._state, self._chat, response))
        return self._heard(env)

    def _heard(self, env: Any) -> ActionResult:
        """What was said since the last answer; at the end with the reward."""
        state, known = self._state, len(self._chat) and len(self._chat) + 1
        if not (ended := _await(env.is_completed(state))):
            self._chat = _await(env.get_prompt_messages(state))
            ended = _await(env.is_completed(state))
        told = "\n\n".join(str(dict(m)["content"]) for m in state["final_env_response"] or self._chat[known:])
        if not ended:
            return ActionResult(told, 0.0, False)
        _await(env.cleanup(state))
        _await(env.rubric.score_rollout(state))
        info = {"success": state["reward"] >= self.success_reward, "truncated": bool(state["is_truncated"])}
        return ActionResult(told, float(state["reward"]), True, info)


@cache
def _load(id: str, options: str) -> Any:
    import verifiers

    return verifiers.load_environment(id, **json.loads(options))


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _await(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, _loop(os.getpid())).result()


def verifiers_environment(environment: BaseEnvironment, problems: int = 1000, seed: int = 0) -> Any:
    """An environment as verifiers' MultiTurnEnv, on some problems of its train split: `total` is the return."""
    import verifiers
    from datasets import Dataset

    class World(verifiers.MultiTurnEnv):
        async def setup_state(self, state: Any) -> Any:
            state["episode"] = Episode.begin(environment, json.loads(state["answer"]))
            return state

        async def env_response(self, messages: Any, state: Any, **_: Any) -> list[Message]:
            episode = state["episode"]
            await asyncio.to_thread(episode.say, str(messages[-1].content))
            if episode.error is not None:
                raise verifiers.Error(episode.error)
            answer: list[Message] = [{"role": "user", "content": episode.observation}]
            state["final_env_response"] = answer if episode.finish else None
            return answer

    def total(state: Any) -> float:
        return float(state["episode"].reward().value)

    def success(state: Any) -> float:
        return float(state["episode"].success)

    drawn = environment.problems("train", problems, seed)
    asked = [list(Episode.begin(environment, problem).messages) for problem in drawn]
    rows = [{"prompt": chat, "answer": json.dumps(p)} for chat, p in zip(asked, drawn, strict=True)]
    rubric = verifiers.Rubric(funcs=[total, success], weights=[1.0, 0.0])
    return World(dataset=Dataset.from_list(rows), rubric=rubric)
