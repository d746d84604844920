"""Past one GPU: the same RunConfig on verl and Ray.

    fields.py         every key of RunConfig: its key in verl, who handles it, or why verl cannot
    settings.py       verl's settings, files and environment
    composing.py      verl's complete configuration, validated by verl
    backend.py        a run from beginning to end
    models.py         the weights that verl starts from
    launcher.py       the child process: how far its start is, whether it still works, and nothing left behind
    results.py        verl's metrics and the answers, as the run store holds them
    ray_cluster.py    joining a Ray cluster

Inside verl's processes: agent_loop.py (answers and episodes), reward.py (compute_score), answers.py (one line a graded
answer), value_head.py (a critic without flash-attn), replay.py (groups of two answers or more), plugins.py.

verl, ray and torch are imported inside functions.
"""
