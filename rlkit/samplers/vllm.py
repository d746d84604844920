"""vLLM in the trainer's process, on the trainer's GPU.

Prompts go in and come out as token ids. Weights are loaded in process: for a LoRA policy the adapted layers
only, merged in float32 into copies, so that the trainer's base weights are never touched. The other way, an adapter
that vLLM applies beside the frozen base, is there to be compared (ADAPTER). Requires vLLM 0.24 or later (pip install
'rlkit[gpu]').
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlkit.errors import UserError
from rlkit.models.loading import Policy, adapted_weights, save_model
from rlkit.samplers.drawing import require_numbers
from rlkit.sizing.devices import GIB
from rlkit.sizing.packing import granted, keep_to_share
from rlkit.sizing.run import FREE, SLEEPS_ABOVE, TALLEST, beside_cache
from rlkit.types import Sample

ADAPTER = False
"""Whether a LoRA policy's adapter is served as one. Merged weights decode without the adapter's products; the sync-1.5b
case of tests/benchmarks/gpu.py times both."""
MEMORY = ("weights", "kv_cache")  # vLLM's names for the parts of an engine that sleep
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has buffers for


class VllmSampler:
    """The `Sampler` protocol over an in-process vLLM engine.

    Args:
        policy: the trainer's policy; the engine gets a merged copy of its weights.
        max_num_seqs: most sequences decoded together.
        max_model_len: most tokens of a prompt and its response.
        gpu_memory_utilization: share of the card's memory (of the machine's, on a CPU) for the engine, beside what the
            trainer holds; 0 computes it from what is free and what `max_num_seqs` sequences can use (a tenth, on a
            CPU).
        adapter: serve a LoRA policy's adapter beside the frozen base instead of merging it.
        trainer: bytes that the trainer will hold on the card: an optimizer's moments come with its first step.

    Raises:
        UserError: vLLM is not installed, or too little of the card's memory is free.

    Samples of one seed repeat on the same card and version only, since vLLM draws them batch by batch.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_num_seqs: int,
        max_model_len: int,
        gpu_memory_utilization: float = 0.0,
        adapter: bool = ADAPTER,
        trainer: int = 0,
    ) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine must share the trainer's process
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self.vllm = import_vllm()
        self.stop_ids, self.device = policy.stop_ids, policy.device
        self.sleeps, on_gpu = False, self.device.type == "cuda"
        self.asleep: set[str] = set()  # of MEMORY
        options: dict[str, Any] = {"gpu_memory_utilization": gpu_memory_utilization or 0.1}
        if on_gpu:
            if not gpu_memory_utilization:
                beside = beside_cache(weight_bytes(policy), max_num_seqs, policy.base.config.vocab_size)
                options = memory_options(beside, kv_bytes(policy) * max_model_len, max_num_seqs, trainer)
            total = torch.cuda.mem_get_info()[1]
            self.sleeps = options["gpu_memory_utilization"] * total > SLEEPS_ABOVE
        self.adapter = Adapter(policy) if adapter and policy.model is not policy.base else None
        if self.adapter:
            options |= self.adapter.options
        with tempfile.TemporaryDirectory() as folder:
            save_model(policy, Path(folder), merged=self.adapter is None)
            if on_gpu:
                torch.cuda.empty_cache()  # the engine's memory is its own: what merging used must be free
            self.engine = self._start(
                model=folder, dtype=str(policy.dtype).removeprefix("torch."), seed=0, skip_tokenizer_init=True,
                max_num_seqs=max_num_seqs, max_model_len=max_model_len, enable_prefix_caching=True,
                logprobs_mode="processed_logprobs", disable_log_stats=True, enforce_eager=not on_gpu,
                enable_sleep_mode=self.sleeps, **options,
            )  # fmt: skip
        if self.adapter:
            self.adapter.serve(self.engine, policy.model)

    def _start(self, **options: Any) -> Any:
        """The engine. vLLM frees what sleeps with the process only, and asserts that there is no second."""
        try:
            return self.vllm.LLM(**options)
        except AssertionError as error:
            if "one instance per process" not in str(error):
                raise
            raise UserError(
                "rollout.name is 'vllm', but this process has trained with a vLLM engine of this size already, and has "
                "no room for a second: start the run in a process of its own (rlkit run, or a restarted kernel)."
            ) from None

    def sample(
        self,
        prompts: Sequence[np.ndarray],
        n: int,
        *,
        seed: int,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> list[list[Sample]]:
        """As `rlkit.types.Sampler.sample`. Log-probs are vLLM's own, of the distribution drawn from."""
        self._wake(*MEMORY)
        parameters = self.vllm.SamplingParams(
            n=n, temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens, logprobs=0,
            stop_token_ids=list(self.stop_ids), ignore_eos=True, detokenize=False, flat_logprobs=True,
            output_kind=self.vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        requests = [{"prompt_token_ids": ids.tolist()} for ids in prompts]
        with seeded(seed, self.device):
            request = self.adapter.request if self.adapter else None
            outputs = self.engine.generate(requests, parameters, use_tqdm=False, lora_request=request)
        return [[self._sample(o) for o in sorted(group.outputs, key=lambda o: o.index)] for group in outputs]

    def _sample(self, output: Any) -> Sample:
        ids = np.fromiter(output.token_ids, np.int64, len(output.token_ids))
        held = output.logprobs  # one log-prob a position: that of the sampled token
        logprobs = np.array([held.logprobs[start] for start in held.start_indices], np.float32)
        drawn = np.array([held.token_ids[start] for start in held.start_indices], np.int64)
        if not np.array_equal(drawn, ids):
            raise RuntimeError("vLLM returned log-probs of other tokens than it sampled")
        require_numbers(logprobs)
        return Sample(ids, logprobs, "stop" if output.finish_reason == "stop" else "length")

    def session(self, keep: int) -> "VllmSampler":
        """Itself: the engine remembers what prompts begin with."""
        return self

    def sync(self, policy: torch.nn.Module) -> None:
        """Load the policy's weights into the running engine and forget what it cached under the old ones."""
        self._wake("weights")
        if self.adapter:
            self.adapter.serve(self.engine, policy)
        else:
            self.engine.apply_model(lambda model: model.load_weights(adapted_weights(policy)) and None)
        if not self.engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept keys and values that it computed under the old weights")

    def release(self) -> None:
        """Put a large engine to sleep: its cache is dropped, its weights go to the CPU until they are needed."""
        if self.sleeps and self.asleep != set(MEMORY):
            self._wake(*MEMORY)  # vLLM puts all of it to sleep or nothing
            torch.cuda.empty_cache()
            free = torch.cuda.mem_get_info()[0]
            self.engine.sleep(level=1)
            self.asleep = set(MEMORY)
            keep_to_share(asleep=torch.cuda.mem_get_info()[0] - free)

    def _wake(self, *parts: str) -> None:
        """Bring parts back that sleep: vLLM fails to map memory that is there."""
        if tags := self.asleep.intersection(parts):
            torch.cuda.empty_cache()  # vLLM maps memory beside torch's allocator, which keeps what the update left
            self.engine.wake_up(tags=sorted(tags))
            self.asleep -= tags
            if not self.asleep:
                keep_to_share()


class Adapter:
    """A policy's LoRA adapter in vLLM, which reads it from a folder in memory (/dev/shm, where there is one)."""

    def __init__(self, policy: Policy) -> None:
        from vllm.lora.request import LoRARequest

        model: Any = policy.model
        rank = model.peft_config["default"].r
        self.options = {
            "enable_lora": True,
            "max_lora_rank": min(r for r in RANKS if r >= rank),
            "max_loras": 1,
        }
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._folder = tempfile.TemporaryDirectory(prefix="rlkit-adapter-", dir=memory)
        self.request = LoRARequest("policy", 1, self._folder.name)

    def serve(self, engine: Any, model: Any) -> None:
        """Put the adapter as it is now in place of the one before."""
        model.save_pretrained(self._folder.name)
        engine.llm_engine.remove_lora(self.request.lora_int_id)
        engine.llm_engine.add_lora(self.request)


def import_vllm() -> Any:
    """The vllm module, or a UserError that says how to get it."""
    try:
        import vllm
        import vllm.sampling_params
    except ImportError as error:
        raise UserError(
            f"rollout.name is 'vllm', but vLLM cannot be imported ({error}): pip install 'rlkit[gpu]', or set "
            "rollout.name to torch."
        ) from None
    return vllm


def weight_bytes(policy: Policy) -> int:
    """Bytes of the merged weights in the policy's precision."""
    base = policy.base
    return sum(p.numel() for n, p in base.named_parameters() if "lora_" not in n) * policy.dtype.itemsize


def kv_bytes(policy: Policy) -> int:
    """Bytes of keys and values a token."""
    c = policy.base.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    return 2 * c.num_hidden_layers * c.num_key_value_heads * head_dim * policy.dtype.itemsize


def memory_options(beside: int, sequence: int, rows: int, trainer: int = 0) -> dict[str, Any]:
    """vLLM's options for its memory: what it takes `beside` its cache, and keys and values of `rows` sequences of
    `sequence` bytes, or as many as fit beside the `trainer`.

    The cache is told in bytes. vLLM would find them by what becomes less on the card while it starts, which another
    run on the same card changes.

    Raises:
        UserError: not even TALLEST sequences would fit beside what is on the card.
    """
    torch.cuda.empty_cache()  # what torch keeps of earlier passes is free
    free, total = torch.cuda.mem_get_info()
    ours = torch.cuda.memory_reserved()
    later = max(0, trainer - ours)
    room = int(FREE * max(0, min(free, (granted() or total) - ours) - later))
    least = beside + sequence * min(TALLEST, rows)
    if least > room:
        others = max(0, total - free - ours)
        raise UserError(
            f"rollout.name is 'vllm', which needs {least / GIB:.1f} GiB of GPU memory for this model, but "
            f"{free / GIB:.1f} of {total / GIB:.1f} GiB are free ({ours / GIB:.1f} held by this run, which will take "
            f"{later / GIB:.1f} more, about {others / GIB:.1f} by other processes): free the card, lower "
            "rollout.max_num_seqs or data.max_response_length, set model.lora_rank, or set rollout.name to torch."
        )
    cache = min(room - beside, sequence * rows)
    return {"kv_cache_memory_bytes": cache, "gpu_memory_utilization": (beside + cache) / total}


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The global generators at `seed`, and afterwards where they were: torch's, of which vLLM draws for Qwen2, and
    numpy's, of which its newer model runner (Llama, Qwen3) draws each request's seed."""
    devices, numpys = [device] if device.type == "cuda" else [], np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(numpys)
