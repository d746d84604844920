"""Agentic mathematics from nothing: collect episodes, train on them, let the model act, improve it online."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.config import Model, Optimizer, RunConfig
from rlkit.environments.agents import ExpertAgent, NoisyAgent, run_episodes
from rlkit.environments.base import Problem
from rlkit.environments.mathematics import Mathematics
from rlkit.environments.metrics import episode_metrics
from rlkit.environments.trajectory import Trajectory, save_trajectories
from rlkit.export import open_saved
from rlkit.models.loading import save_model
from rlkit.params import validate
from rlkit.seeds import content_hash
from rlkit.training.agentic import SMALL_ADAPTER, AgenticConfig, AgenticTrainer, TrainingResult
from rlkit.training.loop import Run, train

if TYPE_CHECKING:
    import pandas as pd

STUDY = "demo-math"
LONGEST = {
    True: 400,
    False: 800,
}  # tokens of a (small or pretrained) model's episode: room for all its 8 steps
TURN = 40  # tokens of a turn


@dataclass(frozen=True)
class DemoResult:
    """The table of metrics (rlkit.environments.metrics), the episodes on the same held-out problems before
    training, after it, after the online run and by the expert, and the two trainings."""

    table: "pd.DataFrame"
    episodes: dict[str, list[Trajectory]]
    training: TrainingResult
    run: Run | None


def math_demo(
    model: str = "ladder-100k",
    *,
    episodes: int = 2000,
    online_steps: int = 60,
    problems: int = 200,
    noise: float = 0.2,
    seed: int = 0,
    root: str | Path = "outputs",
    say: Callable[[str], Any] = print,
) -> DemoResult:
    """Train `model` to solve linear equations step by step, offline on noisy demonstrations, then online.

    Args:
        model: a ladder size, packaged model, folder or hub id.
        episodes: demonstrations, by the scripted expert with a share `noise` of random actions.
        online_steps: steps of online RL in the environment afterwards; 0 leaves them out.
        problems: held-out equations that everything is measured on, with greedy decoding and (the groups
            named "sampled") at temperature 1, the policy that online training improves.
        root: everything is kept under <root>/demo-math; the same settings continue what is there.
        say: is told what happens.
    """
    small = model.startswith("ladder-")
    environment = Mathematics(families=("linear",), instructions="brief" if small else "full", max_steps=8)
    settings = [model, episodes, noise, seed]
    folder = Path(root) / STUDY / f"{Path(model).name}-{content_hash(settings, 8)}"
    say(f"Collecting {episodes} episodes of an expert that acts at random {noise:.0%} of the time.")
    demonstrations = run_episodes(
        NoisyAgent(ExpertAgent(), noise), environment, environment.problems("train", episodes, seed)
    )
    save_trajectories(demonstrations, folder / "demonstrations.jsonl")
    held_out = environment.problems("test", problems, seed)
    played = {"demonstrations": demonstrations}
    trainer = AgenticTrainer(model, environment, demo_config(small), seed=seed)
    played["before"] = trainer.test_inference(held_out)
    say(f"Training {model} on them (success before: {_success(played['before']):.0%}).")
    training = trainer.train(trainer.prepare_training_data(demonstrations))
    played |= _tested("offline", trainer, held_out)
    path = trainer.save(folder / "offline")
    say(f"{training.seconds:.0f} s of training; success {_success(played['offline']):.0%}.")
    run = None
    if online_steps:
        say(f"Acting in the environment and learning from it: {online_steps} steps.")
        run = train(online_config(str(path), environment, online_steps, seed, small=small), root=root)
        save_model(open_saved(run.folder).policy, folder / "online")
        tester = AgenticTrainer(Model(path=str(folder / "online")), environment, trainer.config)
        played |= _tested("online", tester, held_out)
    played["expert"] = run_episodes(ExpertAgent(), environment, held_out)
    compared = {name: group for name, group in played.items() if name != "demonstrations"}
    table = episode_metrics(compared, played["expert"], seed=seed)
    return DemoResult(table, played, training, run)


def demo_config(small: bool) -> AgenticConfig:
    """Settings that suit a ladder model, or a pretrained one with a small adapter."""
    return AgenticConfig(
        temperature=0.5,
        epochs=4 if small else 1,
        batch_size=32 if small else 16,
        optim=Optimizer(lr=4e-3 if small else 1e-3, lr_warmup_steps=20, lr_scheduler_type="cosine"),
        max_response_length=LONGEST[small],
        max_turn_length=TURN,
    )


def online_config(
    path: str, environment: Mathematics, steps: int, seed: int, *, small: bool = True
) -> RunConfig:
    """Online RL in the environment, from the model at `path`: episodes of a problem are compared with each other,
    and their actions with those in the same situation (GiGPO). A pretrained model gets an adapter."""
    content = {
        "study": STUDY,
        "seed": seed,
        "model": {"path": path, **({} if small else SMALL_ADAPTER)},
        "data": {
            "train": [{"kind": "environment", "environment": environment.model_dump(mode="json")}],
            "train_batch_size": 16,
            "max_response_length": LONGEST[small],
        },
        "algorithm": {"adv_estimator": "gigpo"},
        "rollout": {"n": 8, "max_turn_length": TURN},
        "actor": {
            "micro_batch_tokens": 4096 if small else 16_384,
            "optim": {
                "lr": 7e-4 if small else 3e-4,
                "lr_warmup_steps": min(8, steps // 2),
                "lr_scheduler_type": "cosine",
            },
        },
        "trainer": {"total_training_steps": steps, "test_freq": steps, "save_freq": steps},
        "evaluation": {"size": 50, "n": 1},
    }
    return validate(RunConfig, content)


def _tested(name: str, trainer: AgenticTrainer, problems: list[Problem]) -> dict[str, list[Trajectory]]:
    return {
        name: trainer.test_inference(problems),
        f"{name} sampled": trainer.test_inference(problems, temperature=1.0),
    }


def _success(episodes: list[Trajectory]) -> float:
    return sum(e.success for e in episodes) / len(episodes)
