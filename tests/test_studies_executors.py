"""Where runs of a study are executed: Slurm (a stand-in) and the GPUs of a made-up machine; nothing is lost."""

import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from cases import DATA, table
from study_folder import write_notebook
from waiting import wait_for

import rlkit
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.models import loading
from rlkit.sizing.devices import Gpu
from rlkit.sizing.doctor import mps_runs
from rlkit.sizing.memory import CONTEXT
from rlkit.studies import executors
from rlkit.studies import study as studies
from rlkit.studies.executors import MARGIN, Card, Executor, LocalExecutor, make_executor, usable_cards
from rlkit.studies.plan import make_plan

TRAIN = (DATA / "study_logger.txt").read_text()
"""It trains nothing: it logs six steps, from the last that is there on."""


@pytest.fixture
def study_file(tmp_path, monkeypatch):
    write_notebook(tmp_path / "train.ipynb", 'config = ""\noverrides = {}\nroot = "outputs"', TRAIN)
    write_notebook(tmp_path / "analyse.ipynb", 'study = ""', "print(study)")
    (tmp_path / "spread.yaml").write_text((DATA / "study_of_two_rates.yaml").read_text())
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "spread.yaml"


def test_a_run_that_is_lost_again_and_again_is_given_up(study_file):
    doomed = SimpleNamespace(lost=True, done=lambda: True, problem=lambda: "lost with its worker")
    start = Mock(return_value=doomed)
    plan = make_plan(study_file)
    failed = studies.train_all(plan, cast(Executor, SimpleNamespace(workers=4, threads=1, start=start)))
    assert set(failed) == {run.id for run in plan.runs} and start.call_count == 2 * 4


SBATCH = (DATA / "slurm_sbatch.txt").read_text()
SQUEUE = (DATA / "slurm_squeue.txt").read_text()


def install(folder: Path, **programs: str) -> None:
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm that runs a job as it is submitted; the first one's node fails while there is a file `fail`."""
    (tmp_path / "bin" / "jobs").mkdir(parents=True)
    install(tmp_path, sbatch=SBATCH.format(python=sys.executable), squeue=SQUEUE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.timeout(300)
def test_a_run_through_slurm_goes_on_after_its_node_failed(study_file, slurm, capsys):
    Path("fail").touch()
    changes = {"grid.actor.optim.lr": [1e-4], "seeds": [0]}
    result = studies.study(study_file, changes, executor="slurm", options={"partition": "cpu"})
    assert result.failed == {}
    assert "lost (NODE_FAIL); it continues from its last checkpoint" in capsys.readouterr().out
    assert rlkit.read("outputs/spread", "train/accuracy").step.tolist() == [1, 2, 3, 4, 5, 6]
    notebooks = list(Path("outputs/spread/notebooks").iterdir())
    assert {path.suffix for path in notebooks} == {".ipynb"} and "analyse.ipynb" in {path.name for path in notebooks}


def test_what_slurm_refuses_is_its_own_sentence(slurm, tmp_path, monkeypatch):
    executor = make_executor("slurm", 0, 3, {"partition": "none", "cpus_per_task": 2})
    assert (executor.workers, executor.threads) == (3, 2)
    job = executor.start(["true"], tmp_path / "a.log")
    assert job is not None and "invalid partition specified: none" in str(job.problem()) and not job.lost
    (tmp_path / "bin" / "squeue").unlink()  # on some machines jobs can be submitted only
    again = executor.start(["true"], tmp_path / "c.log")
    assert again is not None and "invalid partition specified: none" in str(again.problem())
    alone = make_executor("slurm", 1, 1, {"exclusive": True}).start(["true"], tmp_path / "b.log")
    assert alone is not None and alone.problem() is None
    for wrong in ("abc", 0):
        with pytest.raises(UserError, match=f"cpus_per_task is {wrong!r}: give a whole number of cores"):
            make_executor("slurm", 1, 1, {"cpus_per_task": wrong})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no sbatch here"):
        make_executor("slurm", 1, 1, {})


def test_a_job_whose_number_is_not_known_yet_is_cancelled(slurm, tmp_path, monkeypatch):
    """sbatch keeps what it prints of a queued job until that has ended; a name of its own finds the job."""
    queue = 'echo "$@" > submitted; touch queued; while [ -e queued ]; do sleep 0.05; done; exit 1'
    cancel = 'grep -q -e "--job-name=${1#--name=} " submitted && rm queued'
    install(tmp_path, sbatch=f"#!/bin/sh\n{queue}\n", scancel=f"#!/bin/sh\n{cancel}\n")
    monkeypatch.chdir(tmp_path)
    executor = make_executor("slurm", 2, 2, {"job_name": "mine"})
    job = executor.start(["true"], tmp_path / "a.log")
    wait_for(Path("queued").exists)
    assert job is not None
    job.interrupt()
    wait_for(job.done)
    assert not Path("queued").exists() and "--job-name=mine-" in Path("submitted").read_text()


@pytest.mark.parametrize(*table("studies_wrong_executors_are_one_sentence"))
def test_wrong_executors_are_one_sentence(name, options, message):
    with pytest.raises(UserError, match=message):
        make_executor(name, 1, 1, options)


GB = 1e9


class FakeJob:
    """A process that ends when the test says so."""

    def __init__(self, command, log, environment) -> None:
        self.card, self.share = environment["CUDA_VISIBLE_DEVICES"], int(environment[loading.SHARE])
        self.ended = False

    def done(self) -> bool:
        return self.ended


@pytest.fixture
def executor(monkeypatch) -> LocalExecutor:
    """Two cards with room for 40 and 20 GB on a machine of 16 cores."""
    monkeypatch.setattr(executors, "Job", FakeJob)
    monkeypatch.setattr(executors, "usable_cores", lambda: 16)
    return LocalExecutor("auto", 100, [Card("0", 40 * GB), Card("3", 20 * GB)])


def start(executor: LocalExecutor, gigabytes: float) -> Any:
    return executor.start(["train"], Path("out.log"), (gigabytes * GB - CONTEXT) / MARGIN)


def test_as_many_runs_as_fit_and_the_emptiest_card_first(executor):
    jobs = [start(executor, 9) for _ in range(6)]
    assert [job.card for job in jobs] == ["0", "0", "0", "3", "0", "3"]
    assert start(executor, 9) is None and start(executor, 3) is not None  # a smaller one still fits
    jobs[3].ended = True
    assert start(executor, 9).card == "3"


def test_a_run_is_told_its_share_of_a_card_and_one_that_no_card_holds_is_tried_alone(executor):
    small = start(executor, 1)
    assert small is not None and start(executor, 100) is None
    small.ended = True
    alone = start(executor, 100)
    assert alone.share == int(40 * GB - CONTEXT) and start(executor, 1).card == "3"
    for job in (alone, *executor.cards[1].granted):
        job.ended = True
    jobs = list(iter(lambda: start(executor, 7), None))
    for name, room, count in (("0", 40, 5), ("3", 20, 2)):
        shares = [job.share for job in jobs if job.card == name]
        assert shares == [pytest.approx(7 * GB - CONTEXT, abs=2)] * count
        assert sum(shares) + CONTEXT * count <= room * GB


def test_workers_are_as_many_as_there_is_room_and_need_for_on_what_is_free_of_visible_cards(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [LocalExecutor(*asked).workers for asked in ((0, 8), (0, 1), (3, 8))] == [2, 1, 3]
    monkeypatch.setattr(executors, "usable_cores", lambda: 6)
    assert LocalExecutor("auto", 100, [Card("0", 1e12)]).workers == 6
    assert LocalExecutor("auto", 2, [Card("0", 1e12)]).threads == 3
    found = [Gpu("H100", 80_000, 0, "1"), Gpu("H100", 80_000, 60_000, "1")]
    cards = usable_cards(["1", "0"], found)
    assert [c.name for c in cards] == ["1", "0"] and cards[0].room == pytest.approx(cards[1].room / 4)
    with pytest.raises(UserError, match="names 'MIG-3f'"):
        usable_cards(["MIG-3f"], found)


def test_what_finished_runs_of_the_cell_needed_replaces_the_prediction(executor, tmp_path):
    names = ("ladder-3m", "some/model")
    ladder, unknown = (RunConfig.model_validate({"model": {"path": name}}) for name in names)
    assert 5e7 < executor.gpu_memory(ladder, [tmp_path / "none"]) < 10 * GB
    for name, status, size in (("a", "finished", 1e9), ("b", "finished", 2e9), ("c", "running", 9e9)):
        info = {"status": status, "summary": {"gpu_memory": size}}
        write_text(tmp_path / name / "run.json", json.dumps(info))
    assert executor.gpu_memory(ladder, [tmp_path / n for n in "abc"]) == 2e9
    assert executor.gpu_memory(unknown, []) == math.inf  # nothing known: a card of its own


def test_auto_without_a_gpu_is_a_run_a_core_and_only_local(monkeypatch):
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        found = make_executor("local", "auto", 100)
        assert isinstance(found, LocalExecutor) and not found.shares and found.workers == executors.usable_cores()
    with pytest.raises(UserError, match="--workers auto is for the local executor"):
        make_executor("slurm", "auto", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(executors, "gpus", lambda: [Gpu("H100", 80_000, 0, "1")] * 2)
    found = make_executor("local", "auto", 100)
    assert isinstance(found, LocalExecutor) and found.shares and len(found.cards) == 2


def test_a_process_is_told_its_card_and_its_share_which_is_what_torch_may_allocate(tmp_path, monkeypatch):
    executor = LocalExecutor("auto", 3, [Card("5", 80 * GB)])
    code = "import os, sys; e = os.environ; sys.exit(e['CUDA_VISIBLE_DEVICES'] + ' ' + e['RLKIT_GPU_MEMORY'])"
    job = executor.start([sys.executable, "-c", code], tmp_path / "a.log", GB)
    assert job is not None and job.problem() == f"5 {int(GB * MARGIN)}"
    assert os.environ.get("RLKIT_GPU_MEMORY") is None
    limits = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (70 * GB, 80 * GB))
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", limits.append)
    loading.keep_to_share()
    monkeypatch.setenv(loading.SHARE, str(int(20 * GB)))
    loading.keep_to_share()
    assert limits == [0.25]


def test_mps_is_seen_where_the_user_has_it_on(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not mps_runs()
    (tmp_path / "control").touch()
    assert mps_runs()
