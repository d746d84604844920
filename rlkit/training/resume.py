"""How a run goes on: from its own newest checkpoint, from another run's, or after a step that failed."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from tqdm.auto import tqdm

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.files import require_space
from rlkit.results.progress import checkpoint_steps
from rlkit.results.store import BEST, LOGS, RunStore, read_json
from rlkit.training import checkpoint
from rlkit.training.warm_start import WarmStarted, warm_start

if TYPE_CHECKING:
    from rlkit.training.run import TrainingRun


def warm_started(config: RunConfig, store: RunStore, progress: bool) -> WarmStarted | None:
    """The run's warm start, whose steps are told in run.json and on a bar while it is made; of a run that goes on, the
    one that its weights were trained over: on another kind of device the same config makes another one."""
    recorded, parent = store.info, config.trainer.resume_from_path
    if not checkpoint_steps(store.checkpoints):
        recorded = read_json(Path(parent).parents[1] / "run.json") if parent else {}
    name, hidden = f"warm start {config.model.path}", not progress
    with tqdm(desc=name, unit="step", dynamic_ncols=True, leave=False, delay=0.1, disable=hidden) as bar:

        def show(step: int, steps: int, loss: float) -> None:
            store.update(phase=f"warm start {step}/{steps}")
            bar.total = steps
            bar.set_postfix({"loss": f"{loss:.3f}"}, refresh=False)
            bar.update(step - bar.n)

        return warm_start(config, show, recorded)


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, run: "TrainingRun") -> None:
        self.run, self.root = run, run.store.checkpoints
        self._before: dict[str, Any] = {}  # the step that is being done

    def restore(self) -> None:
        """Go on from the newest whole checkpoint, or from `trainer.resume_from_path`."""
        run, trainer = self.run, self.run.config.trainer
        found = checkpoint.newest(self.root, run.warn)
        if found is not None and trainer.resume_mode == "disable":
            raise UserError(
                f"trainer.resume_mode is 'disable', but {self.root} has a checkpoint of step {found}: use auto to "
                "continue it, another study or seed for a new run, or delete the folder."
            )
        trained: list[Tensor] = [p for p in run.policy.model.parameters() if p.requires_grad]
        if run.learning.critic:
            trained += run.learning.critic.trained().values()
        size = 1_000_000 + 3 * sum(p.numel() * p.element_size() for p in trained)  # weights and two moments
        require_space(run.store.folder, size * (trainer.max_actor_ckpt_to_keep + 1))
        if found is not None:
            self._load(checkpoint.folder_of(self.root, found))
        elif trainer.resume_from_path is not None:
            self._fork(Path(trainer.resume_from_path))
        run.store.truncate(run.step or -1)

    def _fork(self, folder: Path) -> None:
        """Go on from a checkpoint of another run, whose steps until then become this run's."""
        run, parent, steps = self.run, folder.parents[1], self.run.config.trainer.total_training_steps
        key = "trainer.resume_from_path is"
        if (wrong := checkpoint.problem(folder)) is not None:
            raise UserError(
                f"{key} {str(folder)!r}, which is no whole checkpoint ({wrong}): give one of "
                "outputs/<study>/runs/<id>/checkpoints/."
            )
        if (step := int(folder.name.removeprefix("step_"))) >= steps:
            raise UserError(
                f"{key} a checkpoint of step {step}, and trainer.total_training_steps is {steps}: raise it."
            )
        try:
            self._load(folder)
        except (RuntimeError, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise UserError(
                f"{key} {str(folder)!r}, a checkpoint of another model, adapter or critic: only other keys can change "
                f"({str(error).splitlines()[0]})."
            ) from error
        for name in (*LOGS, "evals.parquet"):
            if (parent / name).is_file():
                shutil.copyfile(parent / name, run.store.folder / name)
        kept = run.best(run.config.trainer.keep_best)
        if kept is not None and (best := checkpoint.folder_of(parent / BEST, kept)).is_dir():
            shutil.copytree(best, run.store.folder / BEST / best.name, dirs_exist_ok=True)
        evaluations = read_json(parent / "run.json").get("evaluations", {})
        evaluations = {k: v for k, v in evaluations.items() if int(k) <= step}
        run.store.update(parent={"run": parent.name, "step": step}, evaluations=evaluations)

    def _load(self, folder: Path) -> None:
        run, saved = self.run, checkpoint.load(folder, self.run.policy)
        run.learning.load_state_dict(saved)
        run.step, run.evaluated, run.stale = saved["step"], saved["evaluated"], True
        run.ledger.load_state_dict(saved["ledger"])
        run.feed.load_state_dict(saved["feed"])

    def save(self) -> None:
        """Write a checkpoint of this step."""
        run, keep = self.run, self.run.config.trainer.max_actor_ckpt_to_keep
        if checkpoint.problem(checkpoint.folder_of(self.root, run.step)):  # none, or one that was passed over
            checkpoint.save(self.root, run.step, self._write, keep)

    def save_best(self) -> None:
        """Write a checkpoint of this step into the run's folder of the best one."""
        checkpoint.save(self.run.store.folder / BEST, self.run.step, self._write, keep=1)

    def _write(self, folder: Path) -> None:
        run = self.run
        state = {"step": run.step, "ledger": run.ledger.state_dict(), "feed": run.feed.state_dict()}
        checkpoint.write(folder, run.policy, state | {"evaluated": run.evaluated} | run.learning.state_dict())

    def remember(self) -> None:
        """Keep what a step changes before it moves weights."""
        run = self.run
        self._before = {"step": run.step, "feed": run.feed.copy(), "ledger": run.ledger.state_dict()}
        self._before |= {"kl": run.learning.kl.value, "taken": run.learning.optimizer_steps}

    def save_last_whole_step(self) -> None:
        """A checkpoint of the step before the one that failed, where that has not moved weights yet."""
        run, before = self.run, self._before
        if before and before["step"] > 0 and before["taken"] == run.learning.optimizer_steps:
            run.step, run.feed, run.learning.kl.value = before["step"], before["feed"], before["kl"]
            run.ledger.load_state_dict(before["ledger"])
            self.save()
