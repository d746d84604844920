"""The dimensions of a decoder: all that memory and FLOPs depend on."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rlkit.compute import Shape
from rlkit.config import Section
from rlkit.errors import UserError, did_you_mean
from rlkit.models.rungs import LADDER, VOCABULARY
from rlkit.sizing.published import PUBLISHED

Positive = Annotated[int, Field(gt=0)]
LINEAR: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PRODUCTS = (LINEAR[:3], LINEAR[3:4], LINEAR[4:6], LINEAR[6:])
"""Linear layers that share an input, and are one matrix product in rlkit.models.decoder."""


class ModelShape(Section):
    """A decoder with grouped-query attention and a gated MLP."""

    layers: Positive
    hidden: Positive
    intermediate: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    vocab: Positive
    tied: bool = False
    """Input and output embeddings are one."""
    bias: bool = False
    """Queries, keys and values have biases (Qwen2)."""
    qk_norm: bool = False
    """Queries and keys are normed (Qwen3)."""

    @property
    def q(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Width of all key heads."""
        return self.kv_heads * self.head_dim

    def linear(self, name: str) -> tuple[int, int]:
        """(inputs, outputs) of a layer's linear module, one of LINEAR."""
        d, mlp = self.hidden, self.intermediate
        sizes = ((d, self.q), (d, self.kv), (d, self.kv), (self.q, d), (d, mlp), (d, mlp), (mlp, d))
        return dict(zip(LINEAR, sizes, strict=True))[name]

    @property
    def layer_weights(self) -> int:
        """Matrix weights of all layers."""
        return self.layers * sum(i * o for i, o in map(self.linear, LINEAR))

    @property
    def vectors(self) -> int:
        """Norms and biases."""
        bias, normed = (self.q + 2 * self.kv) * self.bias, 2 * self.head_dim * self.qk_norm
        return self.layers * (2 * self.hidden + bias + normed) + self.hidden

    @property
    def embeddings(self) -> int:
        """Input table and, where it is another, the output head."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layer_weights + self.vectors + self.embeddings

    def adapter_weights(self, rank: int, targets: Collection[str] | Literal["all-linear"]) -> int:
        """Weights of a LoRA adapter of `rank` on the `targets` of every layer."""
        return self.layers * sum(rank * sum(self.linear(name)) for name in adapted(targets) if rank)

    def shape(self, adapter_weights: int = 0) -> Shape:
        """What rlkit.compute counts FLOPs from."""
        width = self.layers * self.q
        return Shape(
            self.layer_weights,
            self.vocab * self.hidden,
            width,
            adapter_weights,
            self.parameters - self.embeddings,
        )


def adapted(targets: Collection[str] | Literal["all-linear"]) -> tuple[str, ...]:
    """The linear layers that `model.target_modules` gives an adapter."""
    return tuple(name for name in LINEAR if targets == "all-linear" or name in targets)


def shape_of(path: str) -> ModelShape:
    """The shape of what `model.path` names: a ladder size, a published or packaged model, a folder, a cached hub id.

    Raises:
        UserError: nothing is known of it.
    """
    if path in LADDER and not Path(path).exists():
        size = LADDER[path]
        return ModelShape(
            layers=size.layers, hidden=size.hidden, intermediate=size.intermediate, heads=size.heads,
            kv_heads=size.heads, head_dim=size.hidden // size.heads, vocab=VOCABULARY, tied=True, bias=True,
        )  # fmt: skip
    config = Path(path) / "config.json"
    if config.is_file():
        return from_config(json.loads(config.read_text()), path)
    if (name := _published(path)) is not None:
        return ModelShape(**PUBLISHED[name])
    if cached := _cached(path):
        return from_config(json.loads(cached.read_text()), path)
    raise UserError(
        f"model.path is {path!r}, whose shape is not known here.{did_you_mean(path, [*LADDER, *PUBLISHED])} Give a "
        f"folder with a config.json, one of {', '.join(PUBLISHED)}, or a ladder size ({', '.join(LADDER)})."
    )


def from_config(config: Mapping[str, Any], where: str = "") -> ModelShape:
    """The shape that a Hugging Face config.json describes. Raises UserError when it is no such decoder."""
    try:
        family, heads = config["model_type"], config["num_attention_heads"]
        return ModelShape(
            layers=config["num_hidden_layers"], hidden=config["hidden_size"], heads=heads, vocab=config["vocab_size"],
            intermediate=config["intermediate_size"], kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            tied=bool(config.get("tie_word_embeddings")), qk_norm=family == "qwen3",
            bias=family == "qwen2" or bool(config.get("attention_bias")),
        )  # fmt: skip
    except KeyError as error:
        raise UserError(
            f"{where}/config.json has no {error}: it describes no decoder that runs here."
        ) from None


def _published(path: str) -> str | None:
    """`Qwen/Qwen2.5-7B-Instruct` is the published shape qwen2.5-7b."""
    name = path.rpartition("/")[2].lower()
    return next((known for known in PUBLISHED if name in (known, f"{known}-instruct")), None)


def _cached(path: str) -> Path | None:
    if path.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(path, "config.json")
    return Path(found) if isinstance(found, str) else None
