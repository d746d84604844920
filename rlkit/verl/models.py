"""Weights in and out of verl: the folder that it starts from, and its sharded checkpoints merged."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlkit.compute import Shape
from rlkit.config import RunConfig
from rlkit.errors import RunStopped
from rlkit.models import packaged
from rlkit.results.progress import checkpoint_steps
from rlkit.results.store import RunStore
from rlkit.training import checkpoint
from rlkit.verl.layout import Files


def path_of(config: RunConfig) -> str:
    """Where the model is that verl loads, or will be once `prepare` has made it."""
    from rlkit.training.warm_start import CACHE, cache_key

    path = config.model.path
    if path.startswith("ladder-") and not Path(path).exists():
        kind = config.model.warm_start.kind
        name = f"{path}-random-{config.seed}" if kind == "none" else f"{path}-{cache_key(config)}"
        return str((CACHE / name).absolute())
    if path in packaged.PACKAGED:
        return str(Path(packaged.MODELS / path).absolute())
    return str(Path(path).absolute()) if Path(path).is_dir() else path


def prepare(config: RunConfig) -> str:
    """`path_of`, with the model made where it is not there: a warm start, random weights, a conversion."""
    from rlkit.models.loading import load_policy, save_model
    from rlkit.training.warm_start import warm_start

    path, folder = config.model.path, path_of(config)
    ladder = path.startswith("ladder-") and not Path(path).exists()
    if path in packaged.PACKAGED:
        packaged.convert(path)
    elif ladder and warm_start(config) is None and not (Path(folder) / "config.json").exists():
        plain = config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"})
        save_model(load_policy(plain, seed=config.seed), Path(folder))
    return folder


def describe(config: RunConfig) -> tuple[Shape, dict[str, int]]:
    """The shape for the ledger and the parameter counts of what trains, without loading weights.

    Raises:
        UserError: there is no such model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from rlkit.models.ladder import ladder_config, parameter_counts
    from rlkit.models.loading import add_lora, check_path, pretrained
    from rlkit.models.shapes import LADDER

    path = config.model.path
    if path in LADDER:
        hf = ladder_config(path)
    else:
        check_path(path)
        with pretrained(path) as found:
            hf = AutoConfig.from_pretrained(**found)
    with torch.device("meta"):
        built: Any = AutoModelForCausalLM.from_config(hf)
        if config.model.lora_rank:
            built = add_lora(built, config.model, config.seed)
    return Shape.of(built), parameter_counts(built)


def merged_step(store: RunStore) -> int:
    """The step of the newest merged checkpoint; 0 without one."""
    return max(checkpoint_steps(store.checkpoints), default=0)


def merge(config: RunConfig, store: RunStore, files: Files) -> None:
    """Merge verl's newest checkpoint into the run store's: a Hugging Face folder, or an adapter's.

    verl's merger writes bfloat16. Raises RunStopped when it fails.
    """
    step = files.kept_step
    if not step or merged_step(store) == step:
        return

    def write(folder: Path) -> None:
        target = folder / "model"
        command = ["merge", "--backend", "fsdp", "--target_dir", str(target)]
        command += ["--local_dir", str(files.checkpoints / f"global_step_{step}" / "actor")]
        done = subprocess.run(
            [sys.executable, "-m", "verl.model_merger", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        (files.attempt / "merge.txt").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise RunStopped(
                f"verl's merger failed on the checkpoint of step {step}. Log: {files.attempt / 'merge.txt'}"
            )
        if config.model.lora_rank:  # the run store keeps an adapter, not a copy of the base model
            adapter = target.with_name("adapter")
            (target / "lora_adapter").rename(adapter)
            shutil.rmtree(target)
            adapter.rename(target)

    checkpoint.save(store.checkpoints, step, write, config.trainer.max_actor_ckpt_to_keep)
