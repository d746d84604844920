"""Runs of a study on the GPUs of a made-up machine: how many, on which, with what share."""

import json
import math
import os
import sys
from pathlib import Path

import pytest

from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.models import loading
from rlkit.params import validate
from rlkit.sizing.devices import Gpu
from rlkit.sizing.doctor import mps_runs
from rlkit.sizing.memory import CONTEXT
from rlkit.studies import executors as packing
from rlkit.studies.executors import MARGIN, Card, LocalExecutor, make_executor, usable_cards

GB = 1e9


class FakeJob:
    """A process that ends when the test says so."""

    def __init__(self, command, log, environment) -> None:
        self.environment, self.ended = dict(environment), False

    def done(self) -> bool:
        return self.ended


@pytest.fixture
def executor(monkeypatch) -> LocalExecutor:
    """Two cards with room for 40 and 20 GB on a machine of 16 cores."""
    monkeypatch.setattr(packing, "Job", FakeJob)
    monkeypatch.setattr(packing, "usable_cores", lambda: 16)
    return LocalExecutor("auto", 100, [Card("0", 40 * GB), Card("3", 20 * GB)])


def work(gigabytes: float) -> tuple[list[str], Path, float]:
    return ["train"], Path("out.log"), (gigabytes * GB - CONTEXT) / MARGIN


def test_as_many_runs_as_fit_and_the_emptiest_card_first(executor):
    jobs = [executor.start(*work(9)) for _ in range(6)]
    assert [job.environment["CUDA_VISIBLE_DEVICES"] for job in jobs] == ["0", "0", "0", "3", "0", "3"]
    assert executor.start(*work(9)) is None
    assert executor.start(*work(3)) is not None  # a smaller one still fits
    jobs[3].ended = True
    again = executor.start(*work(9))
    assert again is not None and again.environment["CUDA_VISIBLE_DEVICES"] == "3"


def test_a_run_is_told_its_share_and_shares_never_exceed_a_card(executor):
    jobs = []
    while (job := executor.start(*work(7))) is not None:
        jobs.append(job)
    assert len(jobs) == 5 + 2
    for name, room in (("0", 40), ("3", 20)):
        here = [job.environment for job in jobs if job.environment["CUDA_VISIBLE_DEVICES"] == name]
        shares = [int(environment[loading.SHARE]) for environment in here]
        assert all(share == pytest.approx(7 * GB - CONTEXT, abs=2) for share in shares)
        assert sum(shares) + CONTEXT * len(shares) <= room * GB


def test_a_run_that_no_card_holds_is_tried_alone(executor):
    small = executor.start(*work(1))
    assert small is not None and executor.start(*work(100)) is None
    small.ended = True
    large = executor.start(*work(100))
    assert large is not None and int(large.environment[loading.SHARE]) == int(40 * GB - CONTEXT)
    second = executor.start(*work(1))
    assert second is not None and second.environment["CUDA_VISIBLE_DEVICES"] == "3"


def test_cpu_cores_are_a_limit_too_and_cards_have_what_is_free_of_those_that_are_visible(monkeypatch):
    monkeypatch.setattr(packing, "usable_cores", lambda: 6)
    assert LocalExecutor("auto", 100, [Card("0", 1e12)]).workers == 6
    assert LocalExecutor("auto", 2, [Card("0", 1e12)]).threads == 3
    found = [Gpu("H100", 80_000, 0, "1"), Gpu("H100", 80_000, 60_000, "1")]
    cards = usable_cards(["1", "0"], found)
    assert [c.name for c in cards] == ["1", "0"]
    assert cards[0].room == pytest.approx(cards[1].room / 4)
    with pytest.raises(UserError, match="names 'MIG-3f'"):
        usable_cards(["MIG-3f"], found)


def config(path: str = "ladder-3m") -> RunConfig:
    return validate(RunConfig, {"model": {"path": path}})


def test_what_finished_runs_of_the_cell_needed_replaces_the_prediction(executor, tmp_path):
    predicted = executor.gpu_memory(config(), [tmp_path / "none"])
    assert 5e7 < predicted < 10 * GB
    for name, status, size in (("a", "finished", 1e9), ("b", "finished", 2e9), ("c", "running", 9e9)):
        (tmp_path / name).mkdir()
        content = {"status": status, "summary": {"gpu_memory": size}}
        (tmp_path / name / "run.json").write_text(json.dumps(content))
    assert executor.gpu_memory(config(), [tmp_path / n for n in "abc"]) == 2e9
    assert executor.gpu_memory(config("some/model"), []) == math.inf  # nothing known: a card of its own


def test_auto_without_a_gpu_is_a_run_a_core_and_only_local(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = make_executor("local", "auto", 100)
    assert isinstance(found, LocalExecutor) and not found.shares and found.workers == packing.usable_cores()
    with pytest.raises(UserError, match="--workers auto is for the local executor"):
        make_executor("slurm", "auto", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(packing, "gpus", lambda: [Gpu("H100", 80_000, 0, "1")] * 2)
    found = make_executor("local", "auto", 100)
    assert isinstance(found, LocalExecutor) and found.shares and len(found.cards) == 2


def test_the_share_is_what_torch_may_allocate(monkeypatch):
    import torch

    limits = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70 * GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    loading.keep_to_share()
    monkeypatch.setenv(loading.SHARE, str(int(20 * GB)))
    loading.keep_to_share()
    assert limits == [0.25]


def test_mps_is_seen_where_the_user_has_it_on(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not mps_runs()
    (tmp_path / "control").touch()
    assert mps_runs()


def test_a_process_is_told_its_card_and_share(tmp_path):
    executor = LocalExecutor("auto", 3, [Card("5", 80 * GB)])
    code = "import os, sys; e = os.environ; sys.exit(e['CUDA_VISIBLE_DEVICES'] + ' ' + e['RLKIT_GPU_MEMORY'])"
    job = executor.start([sys.executable, "-c", code], tmp_path / "a.log", GB)
    assert job is not None and job.problem() == f"5 {int(GB * MARGIN)}"
    assert os.environ.get("RLKIT_GPU_MEMORY") is None
