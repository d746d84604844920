"""Training a run by the local trainer or on verl, as its configuration says."""

from pathlib import Path

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.results.run_state import kept_step
from rlkit.results.store import Run, say_stopped


def train(config: RunConfig, *, root: str | Path = "outputs", progress: bool = True) -> Run:
    """Train one run, or continue it from its newest whole checkpoint; a finished run returns at once.

    Every random choice depends on the config and the step alone, so a run that was killed and called again
    ends as one that was not: with the same bits on a CPU, to rounding on a GPU.

    Args:
        config: from `rlkit.load`.
        root: folder of all studies.
        progress: show a progress bar.

    Raises:
        UserError: the config or the machine cannot do what is asked; nothing expensive has begun.
        RunStopped: the run ended itself (too many answers could not be graded, the sampler and the trainer
            disagree). It leaves a checkpoint of the last whole step, unless the step that failed had moved weights.
    """
    from rlkit.training.checks import preflight
    from rlkit.training.interrupt import Interrupted  # loads torch, as what follows does
    from rlkit.training.loop import train_here

    folder = Path(root) / config.study / "runs" / config.id
    if config.trainer.resume_mode == "disable" and (step := kept_step(folder)):
        raise UserError(
            f"trainer.resume_mode is 'disable', but {folder} has a checkpoint of step {step}: use auto to continue it, "
            "another study or seed for a new run, or delete the folder."
        )
    try:
        preflight(config)
        if config.trainer.backend == "verl":
            from rlkit.verl.backend import train as train_on_verl

            return train_on_verl(config, root=root, progress=progress)
        return train_here(config, Path(root), progress)
    except Interrupted:
        say_stopped(folder)
        return Run(config.id, folder, "stopped", {"steps": kept_step(folder)})
