"""The reduced form of a params file: the same run or study with the smallest models and a few short steps on a CPU, to
see in minutes that it works before it costs hours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlkit.config.run import RunConfig
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.params import flatten, override, read_yaml, validate

MODELS = ("ladder-10k", "ladder-30k", "ladder-50k", "ladder-60k", "ladder-100k", "ladder-150k", "ladder-200k")
FEWEST = {  # what the least of a key's values becomes, the next twice that, and so on: what differs goes on differing
    "data.train_batch_size": 4,
    "actor.ppo_mini_batch_size": 2,
    "data.train_max_samples": 64,
    "rollout.n": 2,
    "evaluation.n": 2,
    "trainer.total_training_steps": 2,
    "trainer.test_freq": 1,
    "trainer.save_freq": 2,
    "model.warm_start.steps": 2,
    "async_training.trigger_parameter_sync_step": 1,
}
FIXED = {
    "model.dtype": "float32",
    "model.warm_start.batch_size": 8,
    "data.max_prompt_length": 3072,  # a byte is a token of the smallest models
    "data.filter_overlong_prompts": True,
    "data.max_response_length": 24,
    "rollout.name": "torch",
    "rollout.tensor_model_parallel_size": 1,
    "rollout.interruption.reserve": 6,
    "rollout.interruption.phrase": " ",
    "reward.overlong_buffer.len": 4,
    "algorithm.filter_groups.enable": False,  # such a model answers nothing right, so that all groups are equal
    "actor.optimizer_offload": False,
    "trainer.backend": "local",
    "trainer.device": "cpu",
    "trainer.tf32": False,
    "trainer.n_gpus_per_node": 1,
    "trainer.nnodes": 1,
    "evaluation.size": 12,
    "verl": {},
}


def write_tiny(path: Path, root: Path) -> Path:
    """Write the reduced form of a run's or study's file to `root`/tiny. Raises UserError as `rlkit.load`."""
    target = root / "tiny" / path.name
    content = {"study": path.stem, **read_yaml(path)}
    write_text(target, yaml.safe_dump(reduced(content, str(path)), sort_keys=False, allow_unicode=True))
    return target


def reduced(content: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The content of a reduced file, whose study's name ends with `_tiny`."""
    shared = content.get("run", content)
    variants, grid = content.get("variants") or {}, content.get("grid") or {}
    whole = flatten(validate(RunConfig, {**shared, "study": "tiny"}, where=where).model_dump())
    smaller = dict[str, dict[Any, Any]]()
    for key in ("model.path", *FEWEST):
        found = [changes[key] for changes in variants.values() if key in (changes or {})]
        varied = grid.get(key) or (found if found and len(found) == len(variants) else [whole[key], *found])
        if key == "model.path":
            if len(models := list(dict.fromkeys(varied))) > len(MODELS):
                told = f"more than {len(MODELS)} models, for which --scale tiny has no small ones"
                raise UserError(f"{where} has {told}.")
            smaller[key] = dict(zip(models, MODELS, strict=False))
        else:
            sizes = sorted({value for value in varied if value and value > 0})
            smaller[key] = {value: FEWEST[key] * (place + 1) for place, value in enumerate(sizes)}

    def small(key: str, value: Any) -> Any:
        return smaller[key].get(value, value) if key in smaller else value

    def changed(section: Mapping[str, Any]) -> dict[str, Any]:
        return {key: [small(key, v) for v in value] if isinstance(value, list) and key in smaller else small(key, value)
                for key, value in section.items()}  # fmt: skip

    sizes = {key: small(key, whole[key]) for key in smaller}
    run = override(shared, FIXED | {key: value for key, value in sizes.items() if value != whole[key]})
    study = f"{content['study']}_tiny"
    if "run" not in content:
        return run | {"study": study}
    result = {**content, "study": study, "run": run, "seeds": content.get("seeds", [0])[:2]}
    if variants:
        fewer = {name: changed(changes or {}) for name, changes in variants.items()}
        # What all runs have now is no variant any more.
        result["variants"] = {n: c for n, c in fewer.items() if not c or not c.items() <= FIXED.items()}
    result |= {key: changed(content[key]) for key in ("grid", "holdout", "baselines") if content.get(key)}
    return result | ({"holdout_after": 1} if content.get("holdout_after") else {})
