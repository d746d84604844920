"""Runs made by hand are named by what differs between their configurations."""

import io
import itertools
import json
import os
import time

import pytest
from cases import table
from rich.console import Console
from study_folder import config, write_run, write_study

import rlkit
from rlkit.config.run import labels
from rlkit.figures import Drawing
from rlkit.figures.study import StudyData, draw
from rlkit.params import flatten
from rlkit.results.store import RunStore
from rlkit.sizing import doctor
from rlkit.studies.status import status_table


@pytest.mark.parametrize(*table("results_labels"))
def test_what_differs_is_named_without_what_goes_along_and_no_two_experiments_have_one_label(runs, names):
    assert labels([flatten(config(**run).model_dump(mode="json")) for run in runs]) == names


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """Three runs without a study's file, two of which differ in their seeds only."""
    root = tmp_path_factory.mktemp("outputs")
    for rate, seed in ((1e-3, 0), (1e-4, 0), (1e-4, 1)):
        write_run(root, config(seed=seed, actor={"optim": {"lr": rate}}), 10_000)
    return root / "sizes"


def test_tables_and_figures_of_runs_made_by_hand_have_words(by_hand):
    cells = rlkit.read(by_hand).groupby("cell")["run"].nunique()
    assert cells.to_dict() == {"optim.lr = 0.0001": 2, "optim.lr = 0.001": 1}
    evals = rlkit.read_evals(by_hand)
    assert set(evals["cell"]) == set(cells.index) and not evals["held_out"].any()
    drawing = dict(draw(StudyData(by_hand), "neurips", ["learning_curves"]))["learning_curves"]
    assert isinstance(drawing, Drawing)
    shown = drawing.figure.axes[0].get_legend_handles_labels()[1]
    assert shown == ["optim.lr = 0.0001", "optim.lr = 0.001"]


def test_the_status_of_a_run_made_by_hand_has_words_and_its_id(by_hand):
    names = [str(name) for name in status_table(by_hand).columns[0].cells]
    ids = [folder.name for folder in sorted((by_hand / "runs").iterdir())]
    assert [name.partition("\n")[2] for name in names] == ids
    assert {name.partition("\n")[0] for name in names} == {
        "optim.lr = 0.001, seed 0", "optim.lr = 0.0001, seed 0", "optim.lr = 0.0001, seed 1",
    }  # fmt: skip


def shown(folder) -> str:
    """The status table in a terminal of 80 columns."""
    Console(width=80, file=(out := io.StringIO())).print(status_table(folder))
    return out.getvalue()


def test_an_id_is_whole_in_a_narrow_terminal_beside_running_and_starting_runs(tmp_path):
    grid = itertools.product(("ladder-10k", "ladder-300k"), (1e-3, 1e-4))
    runs = [config(model, actor={"optim": {"lr": rate}}) for model, rate in grid]
    for i, run in enumerate(runs):
        folder = write_run(tmp_path, run, 10_000)
        with RunStore.open(run, tmp_path) as store:  # now running
            store.update(phase="" if i else "warm start 100/240")
            if not i:
                (folder / "metrics.jsonl").unlink()
    text = shown(tmp_path / "sizes")
    assert all(run.id in text for run in runs) and max(map(len, text.splitlines())) <= 80
    assert text.count("running") == 5 and "warm start 100/240" in text and "→" in text


def test_the_status_of_a_changed_study_fits_80_columns_when_all_runs_have_ended(tmp_path):
    folder = write_study(tmp_path)
    longer = config(trainer={"total_training_steps": 1000, "test_freq": 10})
    write_run(tmp_path, longer, 10_000)  # no longer in the study's file: it is shown with its id
    before = time.time() - 28 * 60
    for file in folder.glob("runs/*/*"):
        os.utime(file, (before, before))
    text = shown(folder)
    assert text.count("28 min") == 9 and "left" not in text
    long = config("smollm2-135m-instruct", study="long")
    write_run(tmp_path, long, 10_000)
    text = shown(tmp_path / "long")
    header = next(line for line in text.splitlines() if "pass@1" in line)
    assert len(long.id) == 38 and long.id in text and header.split()[-1] == "ago" and "→" in text


def test_the_status_says_why_a_run_ended_and_groups_several_studies(tmp_path, by_hand):
    failing, reason = config(study="failing"), "data.max_prompt_length is 3, but a prompt has more tokens. "
    with RunStore.open(failing, tmp_path) as store:
        store.update(status="failed", reason=reason * 9)
    text = " ".join(shown(tmp_path / "failing").split())
    assert "data.max_prompt_length is 3, but" in text.replace("failed ", "") and "…" in text
    write_run(by_hand.parent, config(study="other"), 10_000)
    names = [str(name).partition("\n")[0] for name in status_table(by_hand.parent).columns[0].cells]
    assert names[0] == "other" and names[2] == "sizes" and len(names) == 6


def test_brackets_in_names_are_shown_as_they_are(tmp_path, capsys, monkeypatch):
    folder = write_study(tmp_path / "[x] of outputs")
    content = json.loads((folder / "study.json").read_text().replace('cell": "ladder-', 'cell": "[red] '))
    (folder / "study.json").write_text(json.dumps(content))
    text = shown(folder).replace("\n", "")
    assert "[x] of outputs" in text and "[red] 30k, seed 0" in text
    run = {"model": {"path": "ladder-10k"}, "trainer": {"total_training_steps": 1}}
    file = tmp_path / "brackets.yaml"
    file.write_text(json.dumps({"run": run, "variants": {"[bold] on": {}, "[/x]": {"rollout.n": 2}}}))
    rlkit.study(file, dry_run=True, root=tmp_path)
    planned = capsys.readouterr().out
    assert "[bold] on, seed 0" in planned and "[/x], seed 0" in planned
    monkeypatch.setattr(doctor, "findings", lambda: {"[what]": ("[/found]", "[follows]", "pip install 'x[y]'")})
    Console(width=200).print(doctor.machine_table())
    assert set(["[what]", "[/found]", "[follows]", "'x[y]'"]) <= set(capsys.readouterr().out.split())
