"""Past one GPU: the same RunConfig on verl and Ray.

    fields.py         every leaf of RunConfig: its key in verl, who handles it, or why verl cannot
    limits.py         what verl cannot do, refused by name
    verl_config.py    the settings, and the environment of verl's processes
    composing.py      settings as a command line, composed and validated by verl
    layout.py         where a run keeps its files
    models.py         weights in and out
    agent_loop.py     answers and episodes, turn by turn, inside verl's rollout workers
    reward.py         verl's compute_score over rlkit's router
    answers.py        one line a graded answer: how results leave verl's processes
    value_head.py     verl's critic without flash-attn
    replay.py         groups that lost their siblings are not trained on
    results.py        verl's metrics and the answers, as the run store holds them
    launcher.py       the child process: heartbeat, and nothing left behind
    startup.py        how far its start is
    tail.py           following a file that grows
    backend.py        a run from beginning to end
    plugins.py        files of the user's own, imported by verl's processes
    ray_cluster.py    joining a Ray cluster
    sizing.py         GPUs, memory and hours of a model, estimated

verl, ray and torch are imported inside functions.
"""
