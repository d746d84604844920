"""Models: which there are, how they are loaded, and the forward pass in which a group's samples share their prompt.

In: `model.*` of a RunConfig (a ladder size, a folder, a hub id). Out: a Policy with its tokenizer (loading.py),
log-probs of given tokens (decoder.py, logprobs.py), and shapes without weights (shapes.py).
"""
