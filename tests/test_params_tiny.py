"""--scale tiny: the reduced form of a params file."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import rlkit
from rlkit import cli
from rlkit.config import load
from rlkit.config.tiny import reduced, write_tiny
from rlkit.errors import UserError
from rlkit.models.shapes import LADDER
from rlkit.params import read_yaml
from rlkit.studies.file import load_one
from rlkit.studies.plan import make_plan

FILES = {path.stem: read_yaml(path) for path in sorted(Path("params").glob("*.yaml"))}
RUNS = [name for name, content in FILES.items() if "data" in content]
STUDIES = [name for name, content in FILES.items() if "run" in content]


def small(config) -> None:
    """Assert that a run takes seconds on a CPU."""
    assert LADDER[config.model.path].non_embedding <= 300_000 and config.model.dtype == "float32"
    assert config.trainer.backend == "local" and config.trainer.device == "cpu"
    rollouts = config.data.train_batch_size * config.rollout.n
    assert config.trainer.total_training_steps * rollouts <= 400 and config.data.max_response_length <= 24
    assert config.evaluation.size * config.evaluation.n <= 48 and config.model.warm_start.steps <= 16


@pytest.mark.parametrize("name", RUNS)
def test_every_run_has_a_reduced_form(name, tmp_path):
    target = write_tiny(Path(f"params/{name}.yaml"), tmp_path)
    config = load(target)
    small(config)
    assert config.study == f"{FILES[name]['study']}_tiny" and target == tmp_path / "tiny" / f"{name}.yaml"


@pytest.mark.parametrize("name", STUDIES)
def test_cells_of_every_study_go_on_differing_in_its_reduced_form(name, tmp_path):
    content = FILES[name]
    plan = make_plan(write_tiny(Path(f"params/{name}.yaml"), tmp_path), {}, tmp_path)
    for run in plan.runs:
        small(run.config)
    cells = {run.name for run in plan.runs}
    assert len({run.id for run in plan.runs}) == len(plan.runs) == len(cells) * min(2, len(content.get("seeds", [0])))
    count = max(1, len(content.get("variants", {})))
    for values in content.get("grid", {}).values():
        count *= len(values)
    gone = 1 if name.startswith("scalerl") else 0  # no group is filtered, so that leaving that out is no variant
    assert len(cells) == count - gone
    assert any(run.held_out for run in plan.runs) == bool(content.get("holdout"))


def test_what_grows_in_a_file_grows_in_its_reduced_form():
    grid, holdout = {"data.train_batch_size": [64, 16, 32]}, {"data.train_batch_size": [64]}
    made = reduced({"study": "s", "run": {}, "grid": grid, "holdout": holdout})
    assert made["grid"] == {"data.train_batch_size": [12, 4, 8]} and made["holdout"] == {"data.train_batch_size": [12]}
    with pytest.raises(UserError, match="more than 7 models"):
        reduced({"study": "s", "run": {}, "grid": {"model.path": list(LADDER)[:8]}}, "f.yaml")


def test_variants_of_a_recipe_are_trained_in_its_reduced_form(tmp_path):
    plan = make_plan(write_tiny(Path("params/scalerl_ladder_gpu.yaml"), tmp_path), {"seeds": [0]}, tmp_path)
    assert len(plan.runs) == 8
    for run in plan.runs[::3]:
        assert rlkit.train(run.config, root=tmp_path, progress=False).status == "finished"


@pytest.mark.parametrize("text", ["variants: [a]", "variants: {a: [1]}", "grid: {rollout.n: 4}", "seeds: 3"])
def test_a_wrong_file_of_a_study_is_told_as_without_a_scale(tmp_path, text):
    (file := tmp_path / "wrong.yaml").write_text(f"run: {{}}\n{text}\n")
    told = CliRunner().invoke(cli.app, ["study", str(file), "--scale", "tiny", "--root", str(tmp_path)])
    assert isinstance(told.exception, UserError) and text.partition(":")[0] in str(told.exception)
    with pytest.raises(UserError):
        load_one(file, {"variant": "a"})


def test_the_command_line_writes_the_reduced_form_and_says_where(tmp_path):
    file = tmp_path / "one.yaml"
    content = {"study": "one", "model": {"path": "Qwen/Qwen2.5-7B"}, "trainer": {"device": "cuda"}}
    file.write_text(yaml.safe_dump(content))
    options = ["--scale", "tiny", "--dry-run", "--root", str(tmp_path)]
    told = CliRunner().invoke(cli.app, ["run", str(file), *options, "rollout.n=3"])
    assert told.exit_code == 0 and "ladder-10k" in told.output
    assert f"wrote {tmp_path / 'tiny' / 'one.yaml'}" in told.stderr
