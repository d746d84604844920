"""Samplers: where responses come from. All speak `rlkit.types.Sampler`.

In: prompts as token ids, and a policy whose weights are synced. Out: responses with their log-probs; rollouts.py
joins them with tasks and rewards. choice.py says whether a run takes torch.py or vllm.py.
"""
