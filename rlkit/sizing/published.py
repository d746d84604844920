"""Shapes of published models, from the config.json of their model cards."""

from typing import Any

PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {
        "layers": 24, "hidden": 896, "intermediate": 4864, "heads": 14, "kv_heads": 2, "head_dim": 64,
        "vocab": 151936, "tied": True, "bias": True,
    },
    "qwen2.5-1.5b": {
        "layers": 28, "hidden": 1536, "intermediate": 8960, "heads": 12, "kv_heads": 2, "head_dim": 128,
        "vocab": 151936, "tied": True, "bias": True,
    },
    "qwen2.5-3b": {
        "layers": 36, "hidden": 2048, "intermediate": 11008, "heads": 16, "kv_heads": 2, "head_dim": 128,
        "vocab": 151936, "tied": True, "bias": True,
    },
    "qwen2.5-7b": {
        "layers": 28, "hidden": 3584, "intermediate": 18944, "heads": 28, "kv_heads": 4, "head_dim": 128,
        "vocab": 152064, "tied": False, "bias": True,
    },
    "qwen2.5-14b": {
        "layers": 48, "hidden": 5120, "intermediate": 13824, "heads": 40, "kv_heads": 8, "head_dim": 128,
        "vocab": 152064, "tied": False, "bias": True,
    },
    "qwen2.5-32b": {
        "layers": 64, "hidden": 5120, "intermediate": 27648, "heads": 40, "kv_heads": 8, "head_dim": 128,
        "vocab": 152064, "tied": False, "bias": True,
    },
    "qwen3-0.6b": {
        "layers": 28, "hidden": 1024, "intermediate": 3072, "heads": 16, "kv_heads": 8, "head_dim": 128,
        "vocab": 151936, "tied": True, "qk_norm": True,
    },
    "qwen3-1.7b": {
        "layers": 28, "hidden": 2048, "intermediate": 6144, "heads": 16, "kv_heads": 8, "head_dim": 128,
        "vocab": 151936, "tied": True, "qk_norm": True,
    },
    "qwen3-4b": {
        "layers": 36, "hidden": 2560, "intermediate": 9728, "heads": 32, "kv_heads": 8, "head_dim": 128,
        "vocab": 151936, "tied": True, "qk_norm": True,
    },
    "qwen3-8b": {
        "layers": 36, "hidden": 4096, "intermediate": 12288, "heads": 32, "kv_heads": 8, "head_dim": 128,
        "vocab": 151936, "tied": False, "qk_norm": True,
    },
    "smollm2-135m": {
        "layers": 30, "hidden": 576, "intermediate": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64,
        "vocab": 49152, "tied": True,
    },
    "smollm2-360m": {
        "layers": 32, "hidden": 960, "intermediate": 2560, "heads": 15, "kv_heads": 5, "head_dim": 64,
        "vocab": 49152, "tied": True,
    },
    "smollm2-1.7b": {
        "layers": 24, "hidden": 2048, "intermediate": 8192, "heads": 32, "kv_heads": 32, "head_dim": 64,
        "vocab": 49152, "tied": True,
    },
}  # fmt: skip
