"""Keys that change nothing are said before the runs, and equal cells after them."""

from pathlib import Path

import pytest
from cases import table
from study_folder import config, write_study
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RunConfig, load
from rlkit.figures import Drawing
from rlkit.figures.study import StudyData, draw
from rlkit.measures.summary import before_after, equal_cells_sentence, final, write
from rlkit.params import flatten
from rlkit.results.read import read
from rlkit.studies.file import RULES, inert_keys


@pytest.mark.parametrize(*table("studies_key_without_a_use_is"))
def test_a_key_without_a_use_is_found_and_one_with_a_use_is_not(key, without, with_use):
    assert list(inert_keys(RunConfig.model_validate(without), [key])) == [key]
    assert inert_keys(RunConfig.model_validate(with_use), [key]) == {}


def test_every_rule_names_keys_that_there_are():
    known = [f"{key}." for key in flatten(RunConfig.model_validate({}).model_dump())]
    rules = " ".join(RULES).split()
    assert [name for name in rules if not any(key.startswith(f"{name}.") for key in known)] == []


def test_no_shipped_file_sets_a_key_that_does_nothing():
    for path in sorted(Path("params").glob("*.yaml")):
        if path.stem.startswith(("agentic", "custom_domain", "plan")) or "algorithm.adv_estimator" in path.read_text():
            continue  # no run's file, or one whose variants use what they share
        run = load(path)
        assert inert_keys(run, flatten(run.model_dump(exclude_unset=True))) == {}, path


def test_a_dry_run_of_a_run_or_a_study_says_which_keys_do_nothing(tmp_path):
    run, study = tmp_path / "run.yaml", tmp_path / "clips.yaml"
    run.write_text("study: one\nmodel: {path: ladder-10k}\nactor: {clip_ratio_high: 0.4}\n")
    study.write_text("run: {model: {path: ladder-10k}}\ngrid: {actor.clip_ratio_high: [0.2, 0.4]}\n")
    for command, file, used in (("run", run, "actor"), ("study", study, "run.actor")):
        call = [command, str(file), "--dry-run", "--root", str(tmp_path)]
        said = " ".join(CliRunner().invoke(app, call).output.split())
        assert "actor.clip_ratio_high changes nothing here: each batch is one optimizer step" in said
        assert "changes nothing" not in CliRunner().invoke(app, [*call, f"{used}.ppo_epochs=2"]).output


def test_identical_cells_are_named_in_the_summary_and_in_captions(tmp_path):
    cells = (("a", 0.2, 10_000), ("b", 0.4, 10_000), ("c", 0.6, 30_000))
    runs = [(config(actor={"clip_ratio_high": clip}), size, {"cell": name}) for name, clip, size in cells]
    twins = write_study(tmp_path, runs)
    points = final(read(twins))
    assert equal_cells_sentence(points).endswith("step for step: a, b.")
    study = StudyData(twins)
    caution = "Caution: the runs of these cells are identical, step for step: a, b."
    assert caution in write(twins, before_after(study.evals), points)
    drawing = dict(draw(study, "acl", ["before_after"]))["before_after"]
    assert isinstance(drawing, Drawing) and caution in drawing.caption
    assert equal_cells_sentence(points[points["cell"] != "b"]) == ""
    assert equal_cells_sentence(points.drop(columns="actor/grad_norm")) == ""
