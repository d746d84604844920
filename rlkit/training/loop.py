"""The RL loop, top to bottom: rollout, reward, advantages, update, sync, evaluate, checkpoint."""

from pathlib import Path

from rlkit.config import RunConfig
from rlkit.progress import kept_step
from rlkit.store import Run, say_stopped
from rlkit.training.interrupt import Interrupt, Interrupted
from rlkit.training.preflight import preflight
from rlkit.training.session import Session


def train(config: RunConfig, *, root: str | Path = "outputs", progress: bool = True) -> Run:
    """Train one run, or continue it from its newest whole checkpoint; a finished run returns at once.

    Every random choice depends on the config and the step alone, so a run that was killed and called again
    ends with the bits of one that was not (`rlkit verify-resume` shows it).

    Args:
        config: from `rlkit.load`.
        root: folder of all studies.
        progress: show a progress bar.

    Raises:
        UserError: the config or the machine cannot do what is asked; nothing expensive has begun.
        RunStopped: the run ended itself (too many answers could not be graded, the sampler and the trainer
            disagree), with a checkpoint of the last whole step.
    """
    try:
        preflight(config)
        if config.trainer.backend == "verl":
            from rlkit.scaleout.backend import train as train_on_verl

            return train_on_verl(config, root=root, progress=progress)
        with Interrupt() as interrupt, Session.open(config, Path(root), progress) as session:
            return _steps(session, interrupt)
    except Interrupted:
        folder = Path(root) / config.study / "runs" / config.id
        say_stopped(folder)
        return Run(config.id, folder, "stopped", {"steps": kept_step(folder)})


def _steps(session: Session, interrupt: Interrupt) -> Run:
    """The steps that are left, with their evaluations and checkpoints."""
    trainer = session.config.trainer
    if session.finished:
        return session.result("finished")
    if session.step == 0:
        session.evaluate()
    interrupt.defer()
    while session.step < trainer.total_training_steps:
        if interrupt.requested:
            session.save()
            return session.result("stopped")
        session.begin_step()
        rollouts = session.rollout()
        session.learn(rollouts)
        session.sync()
        if session.due(trainer.test_freq):
            session.evaluate()
        session.end_step()
        if session.due(trainer.save_freq):
            session.save()
    return session.result("finished")
