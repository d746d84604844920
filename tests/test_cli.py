"""The command line as a user meets it: what it prints, where, and its exit status."""

import json
import subprocess
import sys

import pytest
import yaml

import rlkit
from rlkit.config import RunConfig


def rlkit_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlkit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def params(tmp_path):
    def write(text: str):
        (tmp_path / "x.yaml").write_text(text)
        return tmp_path / "x.yaml"

    return write


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rollout: {n: 1}", "rollout.n is 1, but grpo compares samples of one prompt"),
        ("rollout: {m: 8}", "Unknown key 'rollout.m'."),
        ("model: [", "Malformed YAML"),
        ("- a", "must hold a mapping"),
        ("actor: {optim: {lr: -1}}", "actor.optim.lr is -1"),
        ("data: {train_batch_size: 6}\nactor: {ppo_mini_batch_size: 4}", "use one of 1, 2, 3, 6"),
        ("evaluation: {n: 2, pass_at: [4]}", "evaluation.pass_at has k = 4, above evaluation.n = 2"),
    ],
)
def test_bad_input_is_a_sentence_on_stderr_and_status_2(params, text, sentence):
    done = rlkit_command("config", params(text))
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: ") and len(done.stderr.strip().splitlines()) == 1


def test_a_missing_file_is_said_with_the_nearest_name(params):
    done = rlkit_command("config", params("").with_name("y.yaml"))
    assert done.returncode == 2 and "No such file" in done.stderr and "'x.yaml'" in done.stderr


def test_a_wrong_option_is_status_2():
    done = rlkit_command("study", "x.yaml", "--wrokers", "2")
    assert done.returncode == 2 and "--workers" in done.stderr


def test_overrides_are_typed_and_the_complete_config_is_shown(params):
    done = rlkit_command("config", params("seed: 1"), "actor.optim.lr=1e-5", "model.path=ladder-1m")
    shown = yaml.safe_load(done.stdout)
    assert done.returncode == 0
    assert (shown["seed"], shown["actor"]["optim"]["lr"], shown["model"]["path"]) == (1, 1e-5, "ladder-1m")
    assert rlkit.load(params(done.stdout)).actor.optim.lr == 1e-5


def test_an_override_without_a_value_is_refused(params):
    done = rlkit_command("config", params(""), "actor.optim.lr")
    assert done.returncode == 2 and "key=value" in done.stderr


def test_the_schema_describes_every_field():
    schema = json.loads(rlkit_command("config", "--schema").stdout)
    sections = [schema, *schema["$defs"].values()]
    fields = [(name, field) for s in sections for name, field in s.get("properties", {}).items()]
    assert len(fields) > 80
    undescribed = [
        name for name, field in fields if not field.get("description") and "$ref" not in json.dumps(field)
    ]
    assert undescribed == ["environment"] or undescribed == []
    assert set(schema["properties"]) == set(RunConfig.model_fields)


def test_status_of_an_empty_folder_is_a_sentence(tmp_path):
    done = rlkit_command("status", tmp_path)
    assert done.returncode == 2 and "There are no runs under" in done.stderr
