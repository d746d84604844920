"""The command line as a user meets it: what it prints, where, and its exit status."""

import io
import json
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

import pytest
import yaml
from cases import DATA, table

import rlkit
from rlkit.cli import main
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.studies.file import load_one
from rlkit.studies.plan import make_plan
from rlkit.studies.status import run_end

ROOT = Path(__file__).parent.parent


def rlkit_command(*arguments: object) -> CompletedProcess[str]:
    """The command's status and output, in this process, which saves its start and the import of torch."""
    argv, shown = ["rlkit", *map(str, arguments)], warnings.formatwarning
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            with mock.patch("sys.argv", argv), pytest.raises(SystemExit) as ended:
                main()
        finally:
            warnings.formatwarning = shown
    return CompletedProcess(argv, int(ended.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def params(tmp_path):
    def write(text: str):
        (tmp_path / "x.yaml").write_text(text)
        return tmp_path / "x.yaml"

    return write


@pytest.mark.parametrize(*table("cli_bad_input_is_a_sentence"))
def test_bad_input_is_a_sentence_on_stderr_and_status_2(params, text, sentence):
    done = rlkit_command("config", params(text))
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: ") and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(*table("cli_wrong_argument_is_a_sentence"))
def test_a_wrong_argument_is_a_sentence_and_status_2(params, arguments, sentence, tmp_path, monkeypatch):
    params("model: {path: ladder-10k}")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    done = rlkit_command(*arguments.split())
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


def test_the_module_is_the_command(params):
    command = [sys.executable, "-m", "rlkit", "config", str(params("rollout: {m: 8}"))]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "") and "Unknown key 'rollout.m'." in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_overrides_are_typed_and_the_complete_config_is_shown(params):
    done = rlkit_command("config", params("seed: 1"), "actor.optim.lr=1e-5", "model.path=ladder-1m")
    shown = yaml.safe_load(done.stdout)
    assert done.returncode == 0
    assert (shown["seed"], shown["actor"]["optim"]["lr"], shown["model"]["path"]) == (1, 1e-5, "ladder-1m")
    assert rlkit.load(params(done.stdout)).actor.optim.lr == 1e-5


def test_the_schema_describes_every_field():
    schema = json.loads(rlkit_command("config", "--schema").stdout)
    sections = [schema, *schema["$defs"].values()]
    fields = [(name, field) for s in sections for name, field in s.get("properties", {}).items()]
    assert len(fields) > 80
    undescribed = {n for n, f in fields if not f.get("description") and "$ref" not in json.dumps(f)}
    assert undescribed <= {"environment"}
    assert set(schema["properties"]) == set(RunConfig.model_fields)


STUDY = "study: sizes\nrun: {trainer: {total_training_steps: 1}}\ngrid: {model.path: [ladder-10k, ladder-30k]}"


VARIANTS = (
    "run: {trainer: {total_training_steps: 1}}\n"
    "variants: {in turn: {data.order: sequential}, PPO: {algorithm.adv_estimator: gae, rollout.n: 4}}\n"
)


@pytest.mark.parametrize("command", ["run", "study"])
@pytest.mark.parametrize(*table("studies_wrong_kinds"))
def test_a_study_file_with_a_value_of_a_wrong_kind_is_one_sentence(command, bad, params):
    path = params(STUDY.partition("grid:")[0].replace("study: sizes\n", "") + bad)
    done = rlkit_command(command, path, "--dry-run")
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr) < 400
    assert done.stderr.startswith(f"Error: {path}: ") and "Traceback" not in done.stderr


def test_a_run_of_a_study_chooses_its_cell_by_keys_and_variant_or_the_variant_that_changes_nothing(params):
    for text, cell in ((STUDY, "model.path=ladder-10k"), (VARIANTS, "'variant=in turn'")):
        done = rlkit_command("run", path := params(text))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"rlkit run {path} {cell}" in done.stderr
    assert load_one(params(STUDY), {"model.path": "ladder-30k"}).study == "sizes"
    path = params(VARIANTS)
    planned = {run.variant: run.id for run in make_plan(path).runs}
    assert {name: load_one(path, {"variant": name}).id for name in planned} == planned
    assert load_one(path, {"variant": "PPO", "rollout.n": 2}).rollout.n == 2
    assert load_one(path, {"study": "mine"}).algorithm.adv_estimator == "grpo"

    done = rlkit_command("config", path, "variant=PP")
    told = "has no variant 'PP'. Did you mean 'PPO'? It has: in turn, PPO.\n"
    assert done.returncode == 2 and done.stderr.endswith(told)
    path.write_text(VARIANTS + "grid: {model.path: [ladder-10k, ladder-30k]}\n")
    told = r"study over variant, model\.path: .*x\.yaml variant=PPO model\.path=ladder-10k,"
    with pytest.raises(UserError, match=told):
        load_one(path, {"variant": "PPO"})
    path = params("run: {seed: 0}\nvariants: {base: {}, wide: {rollout.n: 16}}\n")
    planned = {run.variant: run.id for run in make_plan(path).runs}
    assert load_one(path).id == load_one(path, {"variant": "base"}).id == planned["base"] != planned["wide"]


def test_a_run_ends_with_what_it_reached_and_a_stopped_one_with_how_it_goes_on(tmp_path):
    first, last = ({"pass@1": p, "low": p - 0.1, "high": p + 0.1} for p in (0.2, 0.5))
    summary = {"steps": 40, "first": first, "last": last}
    text = run_end("finished", tmp_path, summary)
    assert text.endswith("held-out pass@1 0.200 [0.100, 0.300] before, 0.500 [0.400, 0.600] after 40 steps")
    assert "40 steps kept: the same command or cell goes on" in run_end("stopped", tmp_path, summary)
    assert "no step yet: the same command or cell begins it again" in run_end("stopped", tmp_path, {})
    assert run_end("finished", tmp_path, summary | {"steps": 1}).endswith("after 1 step")
    (tmp_path / "checkpoints" / "step_30").mkdir(parents=True)
    assert "30 steps kept" in run_end("stopped", tmp_path, {})


def test_warnings_of_ours_are_their_sentence_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: [")
    done = subprocess.run(
        [sys.executable, "-c", (DATA / "warnings_shown.txt").read_text()], capture_output=True, text=True, cwd=tmp_path
    )
    first, second = done.stderr.splitlines()[:2]
    assert first.startswith("Cannot read config.yaml: ") and "flow node" in first
    assert second == "<string>:6: UserWarning: of others"


def test_a_dry_run_of_one_run_says_what_it_would_do_or_why_it_would_fail_and_does_nothing(params, tmp_path):
    dry = ("--dry-run", "--root", tmp_path / "outputs")
    unmade = "model.warm_start.steps=77"  # by whatever ran here before
    done = rlkit_command("run", params("study: s"), "rollout.n=4", unmade, *dry)
    assert done.returncode == 0, done.stderr
    what, cost, warm, memory = done.stdout.splitlines()
    assert str(tmp_path / "outputs/s/runs") in what and "4 responses each" in what
    assert cost.startswith("to do: ") and "FLOPs, about " in cost
    assert warm.startswith("before that a warm start of 77 steps: ")
    assert " here; it is kept in " in warm and warm.endswith("/warm for the runs that share it")
    assert memory.startswith("Fits: ")
    assert not (tmp_path / "outputs").exists()
    file, estimator = params("study: s"), "algorithm.adv_estimator"
    for words, why in (
        (["data.train=[{kind: file, path: no.parquet}]"], "no.parquet"),
        ([f"{estimator}=grpoo"], "Did you mean 'grpo'"),
        (["trainer.backend=verl", f"{estimator}=remax"], "which needs the greedy baseline"),
    ):
        lost = rlkit_command("run", file, *words, *dry)
        assert lost.returncode == 2 and why in lost.stderr and not lost.stdout


def test_a_dry_run_of_a_verl_run_says_nothing_of_this_machine(params, tmp_path):
    text = "trainer: {backend: verl, total_training_steps: 20}\nmodel: {warm_start: {steps: 77}}"
    path, root = params(text), tmp_path / "outputs"
    kept = root / "x" / "runs" / load_one(path, {"study": "x"}).id / "verl" / "checkpoints"
    kept.mkdir(parents=True)
    (kept / "latest_checkpointed_iteration.txt").write_text("10")
    done = rlkit_command("run", path, "study=x", "--dry-run", "--root", root)
    _, cost, warm, more = done.stdout.splitlines()
    assert cost.startswith("continues at 10/20: ") and cost.endswith(" FLOPs")
    assert "warm start" in warm  # which is made here, on the CPU
    assert "-m verl.trainer.main_ppo --config-path" in more


def test_serving_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "rlkit.serving.http", raising=False)
    done = rlkit_command("serve", "a-model")
    assert done.returncode == 2 and "pip install 'rlkit[serving]'" in done.stderr


def test_quickstart_begins_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = rlkit_command("quickstart", "--dry-run")
    assert done.returncode == 0 and "18 runs of params/quickstart.yaml" in done.stderr, done.stderr
    assert (tmp_path / "params/quickstart.yaml").read_text() == (ROOT / "params/quickstart.yaml").read_text()
