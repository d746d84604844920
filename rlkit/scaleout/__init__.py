"""Past one GPU: the same RunConfig on verl and Ray, and studies over many machines.

    fields.py       every leaf of RunConfig: its key in verl, who handles it, or why verl cannot
    verl_config.py  the command and the composed configuration
    rows.py         tasks in the order of the mixture, as verl reads them
    agent_loop.py   answers and episodes, turn by turn, inside verl's rollout workers
    reward.py       verl's compute_score over rlkit's router
    answers.py      one line a graded answer: how results leave verl's processes
    value_head.py   verl's critic without flash-attn
    replay.py       groups that lost their siblings are not trained on
    results.py      verl's metrics and the answers, as the run store holds them
    launcher.py     the child process: heartbeat, and nothing left behind
    backend.py      a run from beginning to end
    executors.py    where the runs of a study are executed: here, on Ray, on Slurm

verl, ray and torch are imported inside functions.
"""
