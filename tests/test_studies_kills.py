"""Kills without a warning: a study that SIGKILL ends at random moments comes to the same bits."""

import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from cases import DATA
from resumed import differences
from study_folder import write_notebook

from rlkit.results.store import read_jsonl
from rlkit.studies.plan import make_plan

KILLS = 20
TRAIN = Path(__file__).parents[1] / "notebooks" / "train.ipynb"


def logged(folder: Path) -> int:
    return max((row["step"] for row in read_jsonl(folder / "metrics.jsonl")), default=-1)


@pytest.mark.slow(reason="starts a study twenty-two times")
@pytest.mark.timeout(3600)
def test_a_study_killed_at_random_moments_ends_with_the_bits_of_one_that_is_not(tmp_path, monkeypatch):
    for name in ("whole", "killed"):  # each with its own warm start
        (notebooks := tmp_path / name / "notebooks").mkdir(parents=True)
        shutil.copy(TRAIN, notebooks)
        write_notebook(notebooks / "nothing.ipynb", "study = ''")
        (tmp_path / name / "params").mkdir()
        shutil.copy(DATA / "study_to_kill.yaml", tmp_path / name / "params" / "kills.yaml")
    command = [sys.executable, "-m", "rlkit", "study", "params/kills.yaml", "--workers", "2"]
    said = subprocess.run(command, cwd=tmp_path / "whole", capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    monkeypatch.chdir(tmp_path / "killed")
    folders = [run.folder for run in make_plan("params/kills.yaml").with_threads(1).runs]
    moments, after = random.Random(22), []
    for target in sorted(moments.sample(range(-4, 230), KILLS)):
        with open("log.txt", "ab") as log:
            process = psutil.Popen(command, stdout=log, stderr=log)
        while process.poll() is None and sum(map(logged, folders)) < target:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        assert process.poll() is None, Path("log.txt").read_text()
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
        after.append([logged(folder) for folder in folders])
        print(f"killed after steps {after[-1]}", flush=True)
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    whole = tmp_path / "whole"
    found = {str(folder): differences(whole / folder, folder) for folder in folders}
    assert not any(found.values()), found
