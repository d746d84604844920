"""What a vLLM engine holds of a GPU's memory, and its share of what is free; without torch, for predictions."""

GIB = 2**30
SLEEPS_ABOVE = 8 * GIB
"""Size of a vLLM engine, its cache included, that sleeps during the update; a smaller one hardly fills the GPU."""
ENGINE = 2 * GIB  # vLLM's activations of the largest batch and its CUDA graphs
LOGITS = 18
"""Bytes per sequence and word of the vocabulary while vLLM draws: logits, log-probs, probabilities and noise."""
FREE = 0.92  # share of the free memory that a vLLM engine may take


def beside_cache(weights: int, rows: int, vocab: int) -> int:
    """Bytes that a vLLM engine of `rows` sequences takes besides its KV cache."""
    return weights + ENGINE + LOGITS * rows * vocab
