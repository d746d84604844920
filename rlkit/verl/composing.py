"""Settings as verl's own configuration: its command line, composed by Hydra and validated by verl."""

import copy
import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlkit.errors import UserError, did_you_mean

_PLAIN = re.compile(r"[A-Za-z/][\w/.-]*")


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys; an empty section and a list are values."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def arguments(found: Mapping[str, Any]) -> list[str]:
    """Settings as Hydra's command-line overrides."""
    return [f"{key}={_literal(value)}" for key, value in found.items()]


def _literal(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_literal, value)) + "]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in ("null", "true", "false", "inf", "nan"):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def command(found: Mapping[str, Any]) -> list[str]:
    """The command that trains."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *arguments(found)]


def compose(found: Mapping[str, Any]) -> Any:
    """verl's complete configuration, composed from its own files and validated by it.

    Raises:
        UserError: a key that verl does not have, or a combination that it refuses; with verl's own words.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            composed = hydra_compose("ppo_trainer", overrides=arguments(found))
    except HydraException as error:
        raise UserError(f"verl refuses an override: {_first_line(error)}{_nearest(found)}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no critic where none is asked for
        critic = need_critic(composed)
    try:
        with tempfile.TemporaryDirectory() as folder:
            checked = _with_a_model(composed, Path(folder)) if critic else composed
            validate_config(checked, use_reference_policy=need_reference_policy(checked), use_critic=critic)
        OmegaConf.resolve(composed)
    except (AssertionError, ValueError, HydraException, OmegaConfBaseException) as error:
        raise UserError(f"verl refuses this configuration: {_first_line(error)}") from None
    return composed


def _with_a_model(composed: Any, folder: Path) -> Any:
    """A copy whose critic reads some model: verl loads its configuration to check the critic's, and a dry run
    has not made the run's own yet."""
    from omegaconf import open_dict

    from rlkit.models.ladder import ladder_config
    from rlkit.models.tokenizer import byte_tokenizer

    if Path(composed.critic.model.path).is_dir():
        return composed
    some = ladder_config("ladder-10k")
    some.architectures = ["Qwen2ForCausalLM"]
    some.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    checked = copy.deepcopy(composed)
    with open_dict(checked):
        checked.critic.model.path = str(folder)
    return checked


def as_yaml(composed: Any) -> str:
    """A composed configuration, complete."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(composed)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _nearest(found: Mapping[str, Any]) -> str:
    """The known keys next to one that is not known."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        base = OmegaConf.to_container(hydra_compose("ppo_trainer"), resolve=False)
    assert isinstance(base, dict)
    known = flatten({str(k): v for k, v in base.items()})
    sections = {key.rsplit(".", i)[0] for key in known for i in range(key.count(".") + 1)}
    for key in found:
        if not key.startswith(("+", "~")) and key not in known and key not in sections:
            return f"{did_you_mean(key, known)} A leading + adds a new key."
    return ""
