"""vLLM (0.24 or later) in the trainer's process and on its GPU. Of a LoRA policy it loads merged copies of layers."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlkit.compute import Shape
from rlkit.errors import UserError
from rlkit.models.loading import Policy, adapted_weights, granted, keep_to_share, save_model
from rlkit.samplers.draw_tokens import require_numbers
from rlkit.samplers.vllm_memory import FREE, GIB, SLEEPS_ABOVE, beside_cache
from rlkit.types import Finished, Sample

MEMORY = ("weights", "kv_cache")  # vLLM's names for the parts of an engine that sleep
WORTH = 256  # sequences of full length below which a cache holds so few that decoding is slow


class VllmSampler:
    """The `Sampler` protocol over an in-process vLLM engine; samples of a seed repeat on the same card and version.

    Args:
        gpu_memory_utilization: share of the card's memory (of the machine's, on a CPU) for the engine; 0 computes it
            from what is free and what `max_num_seqs` sequences can use (a tenth, on a CPU).
        later: bytes that the trainer will take besides what it holds: an optimizer's moments come with its first step.

    Raises:
        UserError: vLLM is not installed, or too little of the card's memory is free.
    """

    def __init__(
        self, policy: Policy, *, max_num_seqs: int, max_model_len: int, gpu_memory_utilization: float = 0.0,
        later: int = 0,
    ) -> None:  # fmt: skip
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine must share the trainer's process
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self.vllm = import_vllm()
        self.stop_ids, self.device = policy.stop_ids, policy.device
        self.asleep: set[str] = set()  # of MEMORY
        options: dict[str, Any] = {"gpu_memory_utilization": gpu_memory_utilization or 0.1}
        on_gpu = self.device.type == "cuda"
        if on_gpu and not gpu_memory_utilization:
            shape, item = Shape.of(policy.base), policy.dtype.itemsize
            beside = beside_cache(item * shape.parameters, max_num_seqs, shape.vocab)
            options = memory_options(beside, item * shape.cache_width * max_model_len, max_num_seqs, later)
        total = torch.cuda.mem_get_info()[1] if on_gpu else 0
        self.sleeps = options["gpu_memory_utilization"] * total > SLEEPS_ABOVE
        with tempfile.TemporaryDirectory() as folder:
            save_model(policy, Path(folder))
            if on_gpu:
                torch.cuda.empty_cache()  # the engine's memory is its own: what merging used must be free
            try:  # vLLM frees what sleeps with the process only, and asserts that there is no second
                self.engine = self.vllm.LLM(
                    model=folder, dtype=str(policy.dtype).removeprefix("torch."), seed=0, skip_tokenizer_init=True,
                    max_num_seqs=max_num_seqs, max_model_len=max_model_len, enable_prefix_caching=True,
                    logprobs_mode="processed_logprobs", disable_log_stats=True, enforce_eager=not on_gpu,
                    enable_sleep_mode=self.sleeps, **options,
                )  # fmt: skip
            except AssertionError as error:
                if "one instance per process" not in str(error):
                    raise
                raise UserError(
                    "rollout.name is 'vllm', but this process has trained with a vLLM engine of this size already and "
                    "cannot hold a second: start the run in a process of its own (rlkit run, or a restarted kernel)."
                ) from None

    def sample(
        self, prompts: Sequence[np.ndarray], n: int, *, seed: int, max_tokens: int, temperature: float = 1.0,
        top_p: float = 1.0, on_finished: Callable[[Finished], bool | None] | None = None,
    ) -> list[list[Sample]]:  # fmt: skip
        """See `rlkit.types.Sampler`. Log-probs are vLLM's own; `on_finished` is told of prompts whose samples ended."""
        self._wake(*MEMORY)
        parameters = self.vllm.SamplingParams(
            n=n, temperature=temperature, top_p=top_p, max_tokens=max_tokens, logprobs=0,
            stop_token_ids=list(self.stop_ids), ignore_eos=True, detokenize=False, flat_logprobs=True,
            output_kind=self.vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        groups: dict[int, list[Sample]] = {}
        with seeded(seed, self.device):
            requests = [{"prompt_token_ids": ids.tolist()} for ids in prompts]
            names = self.engine.enqueue(requests, parameters, use_tqdm=False)  # "17-" and random letters
            while self.engine.llm_engine.has_unfinished_requests():
                for output in self.engine.llm_engine.step():
                    place = int(output.request_id) - int(names[0].partition("-")[0])
                    groups[place] = [sample_of(o) for o in sorted(output.outputs, key=lambda o: o.index)]
                    if on_finished is not None:
                        on_finished([(place * n + j, s.ids) for j, s in enumerate(groups[place])])
        return [groups[place] for place in range(len(prompts))]

    def sync(self, policy: torch.nn.Module) -> None:
        """Load the policy's weights into the running engine and forget what it cached under the old ones."""
        self._wake("weights")
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


def sample_of(output: Any) -> Sample:
    """What vLLM sampled, with one log-prob a position, which must be that of the sampled token."""
    ids, held = np.fromiter(output.token_ids, np.int64), output.logprobs
    starts = np.array(held.start_indices, np.int64)
    logprobs, drawn = np.array(held.logprobs, np.float32)[starts], np.array(held.token_ids, np.int64)[starts]
    if not np.array_equal(drawn, ids):
        raise RuntimeError("vLLM returned log-probs of other tokens than it sampled")
    require_numbers(logprobs)
    return Sample(ids, logprobs, "stop" if output.finish_reason == "stop" else "length")


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


def memory_options(beside: int, sequence: int, rows: int, later: int = 0) -> dict[str, Any]:
    """vLLM's options for its memory: what it takes `beside` its KV cache, and keys and values of `rows` sequences of
    `sequence` bytes, or as many as fit beside what the trainer will take `later`. The cache is told in bytes: what vLLM
    would measure while it starts, another run disturbs. Raises UserError where not even one sequence fits."""
    torch.cuda.empty_cache()  # what torch keeps of earlier passes is free
    free, total = torch.cuda.mem_get_info()
    ours = torch.cuda.memory_reserved()
    room = int(FREE * max(0, min(free, (granted() or total) - ours) - later))
    least = beside + sequence
    if least > room:
        others = max(0, total - free - ours)
        raise UserError(
            f"rollout.name is 'vllm', which needs {least / GIB:.1f} GiB of GPU memory for this model and one sequence, "
            f"but {free / GIB:.1f} of {total / GIB:.1f} GiB are free ({ours / GIB:.1f} held by this run, which will "
            f"take {later / GIB:.1f} more, about {others / GIB:.1f} by other processes): free the card, lower "
            "rollout.max_num_seqs or data.max_response_length, set model.lora_rank or actor.optimizer_offload, or set "
            "rollout.name to torch."
        )
    cache = min(room - beside, sequence * rows)
    if (fits := cache // sequence) < min(WORTH, rows):
        warnings.warn(
            f"vLLM's cache has room for {fits} sequences of full length at a time, of {rows} that are sampled "
            "together: long answers will wait for each other. Free GPU memory, or lower data.max_response_length.",
            stacklevel=2,
        )
    return {"kv_cache_memory_bytes": cache, "gpu_memory_utilization": (beside + cache) / total}


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The global generators at `seed`: torch's, of which vLLM draws for Qwen2, and numpy's, for Llama and Qwen3."""
    devices, numpys = [device] if device.type == "cuda" else [], np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(numpys)
