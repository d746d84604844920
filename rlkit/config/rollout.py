"""How responses are sampled, with torch or vLLM: `rollout.*`."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from rlkit.params import Section, Share

VERLS_SHARE = 0.5
"""`gpu_memory_utilization` in a verl run, where it is 0."""


class Interruption(Section):
    """Forced end of long answers (ScaleRL, arXiv 2510.13786), in training and evaluation: one that has not ended
    `reserve` tokens before data.max_response_length is continued by `phrase`, which the loss leaves out and graders
    read, and the policy answers in what is left. Episodes of environments are not interrupted."""

    enable: bool = False
    """Whether long answers are interrupted."""
    reserve: PositiveInt = 512
    """Last tokens of data.max_response_length, for the phrase and the answer after it."""
    phrase: str = "\n\nThe time is up, so I give my final answer now.\n</think>\n\n"
    """What is forced, encoded by the model's tokenizer, the end of its reasoning included."""


class RolloutConfig(Section):
    """How responses are sampled."""

    name: Literal["torch", "vllm", "auto"] = "auto"
    """torch decodes with a static key-value cache, on a GPU in CUDA graphs; vllm runs vLLM in this process; auto is
    the one that is faster for the model's size."""
    n: PositiveInt = 8
    """Samples a prompt (G)."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature; the trainer's log-probs are taken at the same one."""
    max_turn_length: NonNegativeInt = 0
    """Most tokens of one turn in an environment; 0 is what is left of the episode."""
    interruption: Interruption = Interruption()
    max_num_seqs: PositiveInt = 4096
    """Most sequences decoded together."""
    gpu_memory_utilization: Share = 0.0
    """Share of the GPU's memory for vLLM; 0 computes it from what is free and what the sequences need, and is 0.5 in
    a verl run."""
    tensor_model_parallel_size: PositiveInt = 1
    """GPUs that share one copy of the sampler's weights, in a verl run."""
    max_logprob_gap: PositiveFloat | None = None
    """Largest mean |log-prob difference| a token between sampler and trainer, in nats. Unset is 0.02, and 0.05 in
    bfloat16, whose rounding alone moves log-probs by 0.02 to 0.03."""
    sync_check_freq: NonNegativeInt = 0
    """Above 0, a step whose difference is larger than max_logprob_gap ends the run; 0 warns."""
