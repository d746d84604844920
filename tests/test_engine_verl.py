"""verl itself, on the CPU: steps of GRPO by `rlkit.train`, into the run store, continued and merged."""

import json
import os
import signal
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest
from tiny import LETTERS
from waiting import wait_for

import rlkit
from rlkit.data import TaskStream, held_out
from rlkit.models.ladder import byte_tokenizer
from rlkit.models.prompts import encode_chats
from rlkit.results.run_state import checkpoint_steps
from rlkit.results.store import read_jsonl
from rlkit.training.export import open_saved
from rlkit.verl import backend

pytestmark = [
    pytest.mark.engines,
    pytest.mark.slow(reason="starts Ray, vLLM and verl's trainer: 3 to 8 minutes"),
    pytest.mark.timeout(1500),
]
SIZES = {
    "trainer.total_training_steps": 2,
    "trainer.test_freq": 0,
    "trainer.save_freq": 1,
    "data.train_batch_size": 8,
    "rollout.n": 4,
    "rollout.max_num_seqs": 32,
    "evaluation.size": 10,
    "model.path": "ladder-30k",
    "model.dtype": "float32",
    "model.warm_start.steps": 40,
}


@pytest.fixture
def configured(monkeypatch):
    """A config of the sizes with changes, in an environment in which verl runs on the CPU."""
    pytest.importorskip("transfer_queue")
    import verl_on_cpu

    for key, value in verl_on_cpu.ENVIRONMENT.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(backend, "check_machine", lambda config: None)
    return lambda **changes: rlkit.load("params/verl_ladder.yaml", {**SIZES, "verl": verl_on_cpu.OVERRIDES, **changes})


def test_an_adapter_is_trained_synced_and_merged(tmp_path, configured):
    reward = {"reward.custom_reward_function": LETTERS}
    config = configured(**reward, **{"model.lora_rank": 8, "actor.optim.lr": 1e-2})
    run = rlkit.train(config, root=tmp_path, progress=False)
    table = rlkit.read(run.folder)
    gaps = table[table.metric == "rollout_corr/log_ppl_abs_diff"].value
    assert run.status == "finished" and gaps.max() < 5e-3  # vLLM has the adapter of the second step
    adapters = [p for n, p in open_saved(run.folder).policy.model.named_parameters() if "lora_B" in n]
    assert len(adapters) == 2 * 7 and all(p.detach().abs().max() > 0.01 for p in adapters)


def interrupt_after(step: int, root: Path) -> None:
    """Ctrl-C once a step is in the run store."""

    def watch() -> None:
        logs = partial(root.glob, "*/runs/*/metrics.jsonl")
        wait_for(lambda: any(f'"step": {step},' in log.read_text() for log in logs()), 600)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def test_a_run_that_was_ended_and_continued_is_whole_in_the_run_store(tmp_path, configured):
    steps = 12
    config = configured(**{"trainer.total_training_steps": steps, "trainer.save_freq": 2})
    interrupt_after(1, tmp_path)
    stopped = rlkit.train(config, root=tmp_path, progress=False)
    assert stopped.status == "stopped" and 1 <= stopped.summary["steps"] < steps and _ray_processes() == []
    run = rlkit.train(config, root=tmp_path, progress=False)
    assert run.status == "finished" and run.summary["steps"] == steps
    table = rlkit.read(run.folder)
    wide = table[table.data_source == "all"].pivot_table(index="step", columns="metric", values="value")
    assert list(wide.index) == [*range(steps + 1)] and len(table[table.metric == "critic/score/mean"]) == steps
    assert wide.index[wide["eval/pass@1"].notna()].tolist() == [0, steps]
    assert (wide["reward/error_rate"].dropna() == 0).all()
    assert wide["rollout_corr/log_ppl_abs_diff"].max() < 5e-3  # vLLM and the trainer compute the same policy
    assert len(rlkit.read_evals(run.folder)) == 2 * 10 * 2
    last = wide.loc[steps]
    assert last["training/optimizer_steps"] == steps and wide["compute/update_flops"].is_monotonic_increasing
    batches = [TaskStream(config, held_out(config)).batch(step) for step in range(1, steps + 1)]
    prompts = [len(encode_chats(byte_tokenizer(), [list(t.prompt)])[0]) for batch in batches for t in batch]
    assert last["tokens/prompt"] == 4 * sum(prompts)  # every row once, none twice
    rows = [row for log in run.folder.glob("verl/attempt-*/answers/*.jsonl") for row in read_jsonl(log)]
    for step, batch in enumerate(batches, 1):
        seen = {row["task_id"] for row in rows if (row["step"], row["split"]) == (step, "train")}
        assert seen == {task.id for task in batch}
    assert _ray_processes() == []
    info = json.loads((run.folder / "run.json").read_text())
    assert info["startup_seconds"] > 0 and info["phase"] == ""
    assert max(checkpoint_steps(run.folder / "checkpoints")) == steps
    assert open_saved(run.folder).policy  # the merged checkpoint is one like any other
    again = rlkit.train(config, root=tmp_path, progress=False)
    assert again.summary == run.summary  # finished: nothing is started


def test_a_batch_that_is_whole_is_seen_at_once():
    pytest.importorskip("transfer_queue")
    from rlkit.verl.replay_buffer import ComparableGroups

    found = ComparableGroups(
        trainer_mode="sync", trainer_config={}, max_off_policy_threshold=None, max_off_policy_strategy="drop",
        sampler_kwargs={},
    )  # fmt: skip
    assert found.poll_interval == 0.1


def _ray_processes() -> list[str]:
    mine = [p for p in psutil.process_iter(["name", "uids"]) if p.info["uids"].real == os.getuid()]
    return [p.info["name"] for p in mine if p.info["name"] in ("raylet", "gcs_server") or "ray::" in p.info["name"]]
