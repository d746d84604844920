"""Agentic mathematics from nothing: collect episodes, train on them, let the model act, improve it online."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from tqdm.auto import tqdm

from rlkit.config import Model, Optimizer, Positive, RunConfig, Section, Share
from rlkit.environments.agents import ExpertAgent, NoisyAgent, run_episodes
from rlkit.environments.base import Problem
from rlkit.environments.chat import ChatTokens
from rlkit.environments.mathematics import Mathematics
from rlkit.environments.metrics import episode_metrics
from rlkit.environments.trajectory import Trajectory, save_trajectories
from rlkit.files import write_text
from rlkit.models.device import device_of
from rlkit.models.loading import check_path, save_model
from rlkit.models.shapes import is_ladder
from rlkit.params import validate
from rlkit.results.store import Run, read_json
from rlkit.seeds import content_hash
from rlkit.training.agentic import AgenticConfig, AgenticTrainer, TrainingResult, named_model
from rlkit.training.export import open_saved, write_environments
from rlkit.training.loop import train

if TYPE_CHECKING:
    import pandas as pd

STUDY = "demo-math"
TURN = 40  # tokens of a turn
MARGIN = 32  # tokens by which a training problem's prompt may be longer than every held-out one's


class MathDemo(Section):
    """What the demonstration does. Everything that differs between ladder and pretrained models is decided here."""

    model: str = "ladder-100k"
    """A ladder size, packaged model, folder or hub id."""
    episodes: Positive = 2000
    """Demonstrations: episodes of the scripted expert."""
    noise: Share = 0.2
    """Share of random actions in them."""
    online_steps: Annotated[int, Field(ge=0)] = 60
    """Steps of online RL in the environment afterwards; 0 leaves them out."""
    problems: Annotated[int, Field(ge=2)] = 200
    """Held-out equations that everything is measured on, with greedy decoding and (the groups named "sampled") at
    temperature 1, the policy that online training improves."""
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def small(self) -> bool:
        """A ladder model: it trains whole and reads the equation alone, without instructions."""
        return is_ladder(self.model)

    @property
    def environment(self) -> Mathematics:
        """Linear equations; the expert needs four steps, and eight are allowed."""
        return Mathematics(families=("linear",), instructions="brief" if self.small else "full", max_steps=8)

    @property
    def offline(self) -> AgenticConfig:
        """Training on the demonstrations."""
        rate = 4e-3 if self.small else 1e-3
        return AgenticConfig(
            temperature=0.5,
            epochs=4 if self.small else 1,
            batch_size=32 if self.small else 16,
            optim=Optimizer(lr=rate, lr_warmup_steps=20, lr_scheduler_type="cosine"),
            max_response_length=400 if self.small else 800,  # room for all eight steps
            max_turn_length=TURN,
        )

    def online(self, path: str, device: str, prompt_tokens: int) -> RunConfig:
        """Online RL from the model at `path`: episodes of a problem are compared with each other, and their actions
        with those in the same situation (GiGPO). A pretrained model gets an adapter, on a GPU in bfloat16."""
        model = named_model(self.model, device).model_dump(mode="json") | {"path": path}
        rate, steps = 7e-4 if self.small else 3e-4, self.online_steps
        content = {
            "study": STUDY,
            "seed": self.seed,
            "model": model,
            "data": {
                "train": [{"kind": "environment", "environment": self.environment.model_dump(mode="json")}],
                "train_batch_size": 16,
                "max_prompt_length": max(256, prompt_tokens),
                "max_response_length": self.offline.max_response_length,
            },
            "algorithm": {"adv_estimator": "gigpo"},
            "rollout": {"n": 8, "max_turn_length": TURN},
            "actor": {
                "micro_batch_tokens": 16_384 if device == "cuda" else 4096,
                "optim": {"lr": rate, "lr_warmup_steps": min(8, steps // 2), "lr_scheduler_type": "cosine"},
            },
            "trainer": {
                "total_training_steps": steps,
                "test_freq": steps,
                "save_freq": steps,
                "device": device,
            },
            "evaluation": {"size": 50, "n": 1},
        }
        return validate(RunConfig, content)

    def folder(self, root: str | Path) -> Path:
        """Where demonstrations and models are kept: equal settings, equal folder."""
        parts = [self.model, self.episodes, self.noise, self.seed]
        parts += [self.offline.model_dump(mode="json"), self.environment.model_dump(mode="json")]
        return Path(root) / STUDY / f"{Path(self.model).name}-{content_hash(parts, 8)}"

    def plan(self, root: str | Path = "outputs") -> str:
        """What would be done, in words, without loading the model. Raises UserError for a folder that is missing."""
        if not self.small:
            check_path(self.model)
        device, offline, folder = device_of(RunConfig.model_validate({})), self.offline, self.folder(root)
        section, run = named_model(self.model, device), self.online("offline", device, 0)
        trains = f"LoRA of rank {section.lora_rank} on {', '.join(section.target_modules)}" * bool(
            section.lora_rank
        )
        steps = offline.epochs * -(-self.episodes // offline.batch_size)
        online = (
            f"{self.online_steps} steps of {run.data.train_batch_size} problems, {run.rollout.n} episodes each, "
            f"{run.algorithm.adv_estimator}, learning rate {run.actor.optim.lr:g}"
        )
        lines = {
            "model": f"{self.model} on {device} in {section.dtype}; {trains or 'all weights'} train",
            "demonstrations": f"{self.episodes} episodes of an expert that acts at random {self.noise:.0%} of the time",
            "offline": f"{steps} steps of {offline.batch_size} episodes, learning rate {offline.optim.lr:g}"
            + " (done before)" * _trained(folder),
            "online": online if self.online_steps else "none",
            "an episode": f"at most {self.environment.max_steps} steps, {offline.max_response_length} tokens, "
            f"{TURN} a turn",
            "tests": f"{self.problems} held-out equations before and after each training, greedy and sampled",
            "results": f"{folder} and {Path(root) / STUDY / 'runs'}",
        }
        return "\n".join(f"{name:15} {line}" for name, line in lines.items())


@dataclass(frozen=True)
class DemoResult:
    """The table of metrics (rlkit.environments.metrics), the episodes on the same held-out problems before
    training, after it, after the online run and by the expert, and the two trainings."""

    table: "pd.DataFrame"
    episodes: dict[str, list[Trajectory]]
    training: TrainingResult
    run: Run | None


def math_demo(
    *, root: str | Path = "outputs", say: Callable[[str], Any] = print, **settings: Any
) -> DemoResult:
    """Train a model to solve linear equations step by step, offline on noisy demonstrations, then online.

    Args:
        root: everything is kept under <root>/demo-math; the same settings continue what is there.
        say: is told what happens.
        settings: fields of MathDemo.

    Raises:
        UserError: unknown or impossible settings, or a model that cannot be loaded.
    """
    demo = validate(MathDemo, settings)
    environment, folder = demo.environment, demo.folder(root)
    trainer = AgenticTrainer(demo.model, environment, demo.offline, seed=demo.seed)
    trainer.setup_model()  # a model that is not there is said first
    say(f"Collecting {demo.episodes} episodes of an expert that acts at random {demo.noise:.0%} of the time.")
    demonstrations = run_episodes(
        NoisyAgent(ExpertAgent(), demo.noise),
        environment,
        environment.problems("train", demo.episodes, demo.seed),
    )
    save_trajectories(demonstrations, folder / "demonstrations.jsonl")
    held_out = environment.problems("test", demo.problems, demo.seed)
    played = {"demonstrations": demonstrations, "before": _test(trainer, held_out, "before")}
    trainer, training = _train_offline(demo, trainer, demonstrations, folder, say)
    played |= _tested("offline", trainer, held_out)
    say(
        f"Success on {demo.problems} held-out equations: {_success(played, 'before')} → {_success(played, 'offline')}."
    )
    run = None
    if demo.online_steps:
        say(f"Acting in the environment and learning from it: {demo.online_steps} steps.")
        config = demo.online(str(folder / "offline"), trainer.device, _longest(trainer, held_out) + MARGIN)
        trainer.release()
        run = train(config, root=root)
        save_model(open_saved(run.folder).policy, folder / "online")
        write_environments(folder / "online", [environment])
        played |= _tested("online", _saved(demo, folder / "online"), held_out)
    played["expert"] = run_episodes(ExpertAgent(), environment, held_out)
    compared = {name: group for name, group in played.items() if name != "demonstrations"}
    return DemoResult(episode_metrics(compared, played["expert"], seed=demo.seed), played, training, run)


def _train_offline(
    demo: MathDemo,
    trainer: AgenticTrainer,
    demonstrations: list[Trajectory],
    folder: Path,
    say: Callable[[str], Any],
) -> tuple[AgenticTrainer, TrainingResult]:
    """The trained model's trainer and what training did, which an earlier call may have done already."""
    if _trained(folder):
        trainer = _saved(demo, folder / "offline")
        result = TrainingResult(**read_json(folder / "training.json"))
        say(f"{demo.model} was trained on them before: {folder / 'offline'}.")
    else:
        say(f"Training {demo.model} on them.")
        data = trainer.prepare_training_data(demonstrations)
        with _bar("offline training", "step") as advance:
            result = trainer.train(data, lambda step, steps, loss: advance(step, steps, loss=f"{loss:.3f}"))
        trainer.save(folder / "offline")
        write_text(folder / "training.json", json.dumps(asdict(result)))  # last: it says that all is there
    say(
        f"{result.seconds:.0f} s of training on {result.episodes} episodes; loss {result.first_loss:.3f} → "
        f"{result.last_loss:.3f}; {result.parameters_trained:,} of {result.parameters_total:,} parameters trained."
    )
    return trainer, result


def _trained(folder: Path) -> bool:
    return (folder / "training.json").exists()


def _saved(demo: MathDemo, folder: Path) -> AgenticTrainer:
    """A trained model as it was computed with, without an adapter."""
    dtype = named_model(demo.model, device_of(RunConfig.model_validate({}))).dtype
    model = Model(path=str(folder), dtype=dtype)
    return AgenticTrainer(model, demo.environment, demo.offline, seed=demo.seed)


@contextmanager
def _bar(name: str, unit: str) -> Iterator[Callable[..., None]]:
    """A progress bar that goes when done; what is yielded takes the number that is done, of how many, and facts."""
    with tqdm(desc=name, unit=unit, dynamic_ncols=True, leave=False) as bar:

        def advance(done: int, total: int, **facts: str) -> None:
            bar.total = total
            bar.set_postfix(facts, refresh=False)
            bar.update(done - bar.n)

        yield advance


def _test(
    trainer: AgenticTrainer, problems: list[Problem], name: str, temperature: float = 0.0
) -> list[Trajectory]:
    most = trainer.environment.max_steps
    with _bar(f"testing: {name}", "turn") as advance:
        return trainer.test_inference(
            problems,
            temperature=temperature,
            on_turn=lambda turn, live: advance(turn, most, episodes=str(live)),
        )


def _tested(name: str, trainer: AgenticTrainer, problems: list[Problem]) -> dict[str, list[Trajectory]]:
    sampled = f"{name} sampled"
    return {name: _test(trainer, problems, name), sampled: _test(trainer, problems, sampled, 1.0)}


def _longest(trainer: AgenticTrainer, problems: list[Problem]) -> int:
    """Tokens of the longest prompt."""
    chat, environment = ChatTokens(trainer.setup_model()), trainer.environment
    return max(len(chat.prompt(environment.messages(environment.reset(p)))) for p in problems)


def _success(played: dict[str, list[Trajectory]], name: str) -> str:
    return f"{sum(e.success for e in played[name]) / len(played[name]):.0%}"
