"""What tells runs apart, in words: the keys in which their configurations differ."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rlkit.config import UNHASHED

NOT_COMPARED = ("study", "seed", *(f"trainer.{key}" for key in UNHASHED["trainer"]))
"""Dotted keys that make no different experiment: where a run is kept, its seed, and what decides no number."""
_CLEAR = ("model.path", "algorithm.adv_estimator")  # keys whose values say by themselves what they are


def labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label for each run, of the fewest keys that tell all of them apart: `ladder-30k, optim.lr = 0.001`. Runs that
    differ in their seeds only have one; where nothing else differs it is the model's name. `configs`: dotted keys."""

    def groups(keys: Sequence[str]) -> int:
        return len({tuple(config.get(key) for key in keys) for config in configs})

    known = dict.fromkeys((*_CLEAR, *(key for config in configs for key in config)))
    chosen: list[str] = []
    for key in (key for key in known if key not in NOT_COMPARED):
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    for key in chosen[:-1]:  # one that later keys have made superfluous
        others = [other for other in chosen if other != key]
        chosen = others if groups(others) == groups(chosen) else chosen
    chosen = chosen or ["model.path"]
    names = [name_of(key) for key in chosen]
    told = {key: name if names.count(name) == 1 else key for key, name in zip(chosen, names, strict=True)}
    columns = [_texts(key, name, [c.get(key) for c in configs]) for key, name in told.items()]
    return [", ".join(words) for words in zip(*columns, strict=True)]


def in_words(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences, dotted keys to old and new value, in words: `optim.lr = 0.001, rollout.n = 16`; `base` for none."""
    words = [f"{name_of(key)} = {short(new)}" for key, (_, new) in changed.items()]
    shown = ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    return shown or "base"


def name_of(key: str) -> str:
    """The last part of a dotted key; with the one before where it says little alone."""
    parts = key.split(".")
    if key == "model.path":
        return "model"
    return ".".join(parts[-2:]) if parts[-1].isdigit() or parts[-1] in ("n", "lr", "weight") else parts[-1]


def value_of(key: str, value: Any) -> str:
    """A value behind its key's name, `clip_ratio_high = 0.4`; alone where the value says what it is."""
    return str(value) if key in _CLEAR else f"{name_of(key)} = {short(value)}"


def domain_name(data_source: str) -> str:
    """A data_source in words: `simulation__string_trace` is "simulation: string trace"."""
    return data_source.replace("__", ": ", 1).replace("_", " ")


def short(value: Any) -> str:
    """A value of a configuration in few letters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _texts(key: str, name: str, values: Sequence[Any]) -> list[str]:
    """The values with the key's name, short where that keeps them apart."""
    texts = [PurePath(str(v)).name if key == "model.path" else short(v) for v in values]
    if len(set(texts)) < len(set(values)):
        texts = list(map(str, values))
    return texts if key in _CLEAR else [f"{name} = {text}" for text in texts]
