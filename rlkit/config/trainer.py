"""The loop, its checkpoints and its machines: `trainer.*` and `async_training.*`."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from rlkit.params import Section


class AsyncTraining(Section):
    """Responses that are sampled ahead of learning; names are those of verl's fully asynchronous trainer."""

    trigger_parameter_sync_step: PositiveInt = 1
    """Steps between weights for the sampler. Above 1 the responses of so many steps are sampled at once, which is
    faster on a GPU, and learnt from batch by batch (algorithm.filter_groups uses them up sooner);
    algorithm.rollout_correction makes up for weights that are older than the trainer's."""


class EarlyStop(Section):
    """The end of a run whose evaluations no longer get better. No law and no comparison reads the best evaluation."""

    metric: str | None = None
    """Metric of the evaluations that is to rise, e.g. eval/pass@1 or eval/pass@1/<data_source>; unset never stops."""
    patience: PositiveInt = 3
    """Evaluations in a row without a new best after which the run is finished."""


class Trainer(Section):
    """The loop."""

    total_training_steps: PositiveInt = 100
    """Optimizer rounds: one batch of prompts each."""
    test_freq: NonNegativeInt = 20
    """Steps between evaluations; step 0 and the last are always evaluated."""
    save_freq: NonNegativeInt = 20
    """Steps between checkpoints; the last step is always saved."""
    max_actor_ckpt_to_keep: PositiveInt = 2
    """Checkpoints kept."""
    early_stop: EarlyStop = EarlyStop()
    keep_best: str | None = None
    """Metric of the evaluations, e.g. eval/pass@1: the checkpoint of its highest value is kept in `best/` beside the
    newest ones."""
    resume_mode: Literal["auto", "disable"] = "auto"
    """auto continues from the newest whole checkpoint; disable refuses a folder that has one."""
    resume_from_path: str | None = None
    """A checkpoint of another run, outputs/<study>/runs/<id>/checkpoints/step_<k>, that this one goes on from, with
    more steps or another value of a key. Steps up to k become this run's."""
    logger: tuple[Literal["console", "wandb"], ...] = ("console",)
    """Where metrics go besides the run store."""
    backend: Literal["local", "verl"] = "local"
    """local trains in this process, on one CPU or GPU. verl trains on verl over Ray, on any number of GPUs."""
    nnodes: PositiveInt = 1
    """Machines of a verl run."""
    n_gpus_per_node: PositiveInt = 1
    """GPUs of each of them."""
    stall_timeout: PositiveFloat = 1800.0
    """Seconds without a sign of progress after which a verl run is ended."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto is the GPU where there is one."""
    tf32: bool = False
    """Float32 products on a GPU's tensor cores, which round their factors to 10 bits: faster and less exact."""
    num_threads: NonNegativeInt = 0
    """CPU threads of this run; 0 is all cores."""
