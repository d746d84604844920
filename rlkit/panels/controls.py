"""Controls made from RunConfig's JSON schema: what may be changed, within which bounds, with which help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from rlkit.config import RunConfig
from rlkit.errors import UserError, did_you_mean
from rlkit.results.labels import name_of

KEYS = (
    "model.path", "model.lora_rank", "algorithm.adv_estimator", "actor.policy_loss.loss_mode", "actor.optim.lr",
    "actor.clip_ratio", "actor.use_kl_loss", "actor.kl_loss_coef", "actor.entropy_coeff", "rollout.n",
    "rollout.temperature", "data.train_batch_size", "trainer.total_training_steps", "seed",
)  # fmt: skip
"""What the panel shows unless told otherwise; the weights of several sources come on top."""

Kind = Literal["number", "log", "integer", "choice", "suggestion", "switch", "text"]


@dataclass(frozen=True)
class Control:
    """One key of RunConfig that can be changed.

    Attributes:
        key: dotted.
        label: short name.
        kind: number (a range), log (a range over decades), integer (a range), choice (one of `options`),
            suggestion (`options`, or any other text), switch, or text.
        value: that of the configuration the panel starts from.
        help: the field's description.
        low, high, step: the range that is offered; the schema's bounds where it has some.
        options: values to choose from.
    """

    key: str
    label: str
    kind: Kind
    value: Any
    help: str = ""
    low: float | None = None
    high: float | None = None
    step: float = 0.05
    options: tuple[Any, ...] = ()

    @property
    def section(self) -> str:
        """The section of the configuration that it belongs to; "run" for keys of none."""
        return self.key.partition(".")[0] if "." in self.key else "run"


def controls(config: RunConfig, keys: Sequence[str] = KEYS) -> list[Control]:
    """A control for each key, in their order, and for a mixture one for the weight of each source.

    Raises:
        UserError: a key that RunConfig lacks, or that holds a section or a list.
    """
    content = config.model_dump(mode="json")
    sources = content["data"]["train"]
    made = [_control(key, content) for key in keys]
    if len(sources) > 1:
        for i, source in enumerate(sources):
            high = 2.0 * max(s["weight"] for s in sources)
            made.append(
                Control(f"data.train.{i}.weight", f"weight of {source['kind']}", "number", source["weight"],
                        "Share of this source in the mixture, relative to the others'.", 0.0, high)
            )  # fmt: skip
    return made


def _control(key: str, content: Mapping[str, Any]) -> Control:
    schema, value = _leaf(key), _value(key, content)
    made = {"key": key, "label": name_of(key), "value": value, "help": str(schema.get("description", ""))}
    if options := schema.get("enum"):
        return Control(**made, kind="choice", options=tuple(options))
    if options := schema.get("examples"):
        kind: Kind = "suggestion" if key == "model.path" else "choice"  # a path may be any
        return Control(**made, kind=kind, options=tuple(dict.fromkeys((value, *options))))
    if schema.get("type") == "boolean":
        return Control(**made, kind="switch")
    if schema.get("type") == "integer":
        low, high = _bounds(schema, int(value), step=1)
        return Control(**made, kind="integer", low=low, high=high)
    if schema.get("type") == "number":
        return _number(made, schema, float(value))
    return Control(**made, kind="text")


def _number(made: dict[str, Any], schema: Mapping[str, Any], value: float) -> Control:
    """A range between the schema's bounds; over four decades where it has no upper one."""
    if "maximum" in schema or value == 0:
        low, high = _bounds(schema, value)
        return Control(**made, kind="number", low=low, high=high, step=0.01)
    if value >= 0.1:  # of the order of one, such as a temperature
        return Control(
            **made, kind="number", low=0.0 if "minimum" in schema else 0.05, high=max(2.0, 4 * value)
        )
    return Control(**made, kind="log", low=value / 100, high=value * 100)


def _bounds(schema: Mapping[str, Any], value: float, step: float = 0.0) -> tuple[float, float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0.0) + (step or 1e-6))
    if "minimum" not in schema and "exclusiveMinimum" not in schema:
        low = min(0.0, value)
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(4 * value, 16.0 if step else 1.0)))
    return low, high


def _leaf(key: str) -> dict[str, Any]:
    """The JSON schema of one value."""
    node: dict[str, Any] = _schema()
    for part in key.split("."):
        known = _resolved(node).get("properties", {})
        if part not in known:
            near = did_you_mean(part, known)
            raise UserError(f"{key!r} is no key of a run's configuration.{near} See rlkit config --schema.")
        node = known[part]
    leaf = _resolved(node)
    if "properties" in leaf or leaf.get("type") in ("array", "object"):
        raise UserError(f"{key!r} holds no single value: name the keys inside it.")
    return {**leaf, **{k: v for k, v in node.items() if k in ("description", "examples")}}


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    """The definition behind a reference, and of alternatives the one that is not null."""
    for alternative in node.get("anyOf", []):
        if alternative.get("type") != "null":
            node = {**alternative, **{k: v for k, v in node.items() if k != "anyOf"}}
            break
    if "$ref" in node:
        return _schema()["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


@lru_cache(1)
def _schema() -> dict[str, Any]:
    return RunConfig.model_json_schema()


def _value(key: str, content: Mapping[str, Any]) -> Any:
    for part in key.split("."):
        content = content[part]
    return content
