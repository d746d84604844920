"""verl's complete configuration of a run: its own files, what RunConfig sets of them, validated by verl."""

import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.errors import UserError, did_you_mean
from rlkit.verl.config import settings
from rlkit.verl.processes import Files


def compose(config: RunConfig, files: Files, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The configuration that `verl.trainer.main_ppo` reads, without interpolations; `changes` are verl's dotted keys,
    before those of the config's own section `verl`. Raises UserError for a key that verl does not have, or a
    combination that it refuses; with verl's own words."""
    from omegaconf import OmegaConf

    tree = deepcopy(_defaults())
    for key, value in (settings(config, files) | dict(changes or {})).items():
        _put(tree, key, escaped(value))
    for key, value in _flat(config.verl):
        _put(tree, key, value)
    composed = OmegaConf.create(tree)
    try:
        _validate(composed)
        resolved = OmegaConf.to_container(composed, resolve=True)
    except Exception as error:  # whatever verl raises on whatever the section `verl` holds
        words = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"verl refuses this configuration: {words[:300]}") from None
    return escaped(resolved)


@cache
def _defaults() -> dict[str, Any]:
    """verl's own files, composed."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        found: Any = OmegaConf.to_container(hydra_compose("ppo_trainer"), resolve=False)
    return found


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested sections; an empty section and a list are values."""
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key. As in Hydra, a leading + or ++ adds a new one and ~ deletes one."""
    add, (*sections, leaf) = key.startswith("+"), key.lstrip("+~").split(".")
    section: Any = tree
    for name in sections:
        new: Any = {} if add else None
        section = section.setdefault(name, new) if isinstance(section, dict) else None
    if not isinstance(section, dict) or not (add or leaf in section):
        near = did_you_mean(key, [name for name, _ in _flat(_defaults())])
        raise UserError(f"verl has no key {key!r}.{near} A leading + adds a new one.")
    if key.startswith("~"):
        del section[leaf]
    elif isinstance(value, dict) and isinstance(section.get(leaf), dict):
        section[leaf] |= value
    else:
        section[leaf] = value


def escaped(value: Any) -> Any:
    """A value whose texts OmegaConf does not interpolate."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list | tuple) else value


def _validate(composed: Any) -> None:
    """verl's own checks, on a copy: to check a critic, it loads a model, which a dry run has not made yet (some model,
    then); to check an adapter, it asks vLLM, which need not be installed (no adapter, then)."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from rlkit.models.ladder import byte_tokenizer, ladder_config

    checked = deepcopy(composed)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no critic where none is asked for
        if (critic := need_critic(checked)) and not Path(checked.critic.model.path).is_dir():
            some = ladder_config("ladder-10k")
            some.architectures = ["Qwen2ForCausalLM"]
            some.save_pretrained(folder)
            byte_tokenizer().save_pretrained(folder)
            checked.critic.model.path = folder
        if find_spec("vllm") is None:
            checked.actor_rollout_ref.model.lora_rank = 0
        validate_config(checked, use_reference_policy=need_reference_policy(checked), use_critic=critic)
