"""Controls of a configuration's values, made from RunConfig's schema."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlkit.config import RunConfig
from rlkit.config.run import name_of
from rlkit.errors import UserError, did_you_mean
from rlkit.params import flatten

KEYS = (
    "model.path", "model.lora_rank", "algorithm.adv_estimator", "actor.policy_loss.loss_mode", "actor.optim.lr",
    "actor.clip_ratio", "actor.use_kl_loss", "actor.kl_loss_coef", "actor.entropy_coeff", "rollout.n",
    "rollout.temperature", "data.train_batch_size", "trainer.total_training_steps", "seed",
)  # fmt: skip
"""What the panel shows unless told otherwise; the weights of several sources come on top."""


def controls(config: RunConfig, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """The widget of each key, in their order, and for a mixture one for the weight of each source: a choice, a switch,
    a slider over the schema's bounds (or around the value), or a text that is read as YAML, empty for what is unset.
    Raises UserError for a key that RunConfig lacks, or that holds a section."""
    flat = flatten(config.model_dump(mode="json"))
    labels = {key: name_of(key) for key in keys}
    weights = [key for key in flat if key.startswith("data.train.") and key.endswith(".weight")]
    if len(weights) > 1:
        labels |= {key: f"weight of {flat[key.replace('weight', 'kind')]}" for key in weights}
    return {key: _control(key, flat, label) for key, label in labels.items()}


def slider(value: float, low: float, high: float, step: float, log: bool = False, **look: Any) -> Any:
    """A slider between `low` and `high`, ends moved inwards so that whole steps lead to `value`: a browser rounds to
    those. With `log`, `step` is in decades."""
    import ipywidgets

    place = math.log10 if log else float
    down, up = (math.floor((place(b) - place(a)) / step + 1e-9) for a, b in ((low, value), (value, high)))
    ends = {"min": place(value) - step * down, "max": place(value) + step * up, "step": step}
    kind = ipywidgets.FloatLogSlider if log else ipywidgets.FloatSlider
    return kind(value=value, **ends, **look)


def _control(key: str, flat: Mapping[str, Any], label: str) -> Any:
    import ipywidgets as w

    if key not in flat:
        near = f"{did_you_mean(key, flat)} See rlkit config --schema."
        raise UserError(f"{key!r} is no single value of a run's configuration.{near}")
    schema, value = _schema(key), flat[key]
    look: dict[str, Any] = {"description": label, "tooltip": schema.get("description", "")}
    look |= {"style": {"description_width": "11em"}, "layout": {"width": "29em"}}
    if options := schema.get("enum") or schema.get("examples"):
        if key == "model.path":  # any folder or hub id
            return w.Combobox(value=value, options=options, **look)
        return w.Dropdown(value=value, options=tuple(dict.fromkeys((value, *options))), **look)
    if isinstance(value, bool):
        return w.Checkbox(value=value, indent=True, **look)
    low, high = schema.get("minimum"), schema.get("maximum", schema.get("exclusiveMaximum"))
    if isinstance(value, int):
        low = schema.get("exclusiveMinimum", -1) + 1 if low is None else low
        return w.IntSlider(value=value, min=low, max=high or max(4 * value, 16), **look)
    if not isinstance(value, float):
        return w.Text(value="" if value is None else str(value), **look)
    look["readout_format"] = ".3g"
    if high is None and 0 < value < 0.1:
        return slider(value, value / 100, value * 100, 0.05, log=True, **look)
    if high is None:  # of the order of one, such as a temperature
        high = max(2.0, 4 * value) if value else 1.0
    return slider(value, 0.01 if low is None else low, high, 0.01, **look)


def _schema(key: str) -> dict[str, Any]:
    """The JSON schema of one value, of alternatives that of the one that is not null; empty in a list of sections."""
    node = found = whole = RunConfig.model_json_schema()
    for part in key.split("."):
        node = found.get("properties", {}).get(part, {})
        found = next((one for one in node.get("anyOf", ()) if one.get("type") != "null"), node)
        if "$ref" in found:
            found = whole["$defs"][found["$ref"].rsplit("/", 1)[-1]]
    return {**found, **{k: v for k, v in node.items() if k in ("description", "examples")}}
