"""Past one GPU: the same RunConfig on verl and Ray.

In: a RunConfig, which config.py turns into verl's and checks.py may refuse. Out: the same run folder as a local run's
(results.py, from verl's metrics and the answers log). Inside verl's processes run agent_loop.py, compute_score.py (the
reward and the answers log), replay_buffer.py and worker_start.py; elsewhere verl and ray are imported inside functions.
"""
