"""`rlkit data …` as a user meets it, what it prints and how it ends."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.domains import sources
from rlkit.errors import UserError

ROOT = Path(__file__).parent.parent
YAML = """
data:
  train: [{kind: math_problems, weight: 2}, zebra, arc]
  train_batch_size: 16
  train_max_samples: 60
trainer: {total_training_steps: 2}
evaluation: {size: 12}
"""


def call(*words, status=0) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, words)], env={"COLUMNS": "160"})
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


@pytest.fixture
def params(tmp_path) -> Path:
    (tmp_path / "mix.yaml").write_text(YAML)
    return tmp_path / "mix.yaml"


def test_export_and_check(params, tmp_path):
    out = ("--out", tmp_path / "built")
    assert "train: 32 rows, test: 12 rows" in call("export", params, *out)
    train, test = tmp_path / "built/train.parquet", tmp_path / "built/test.parquet"
    assert "32 rows: 0 findings" in call("check", train, "--held-out", test)
    said = call("check", train, "--held-out", train, status=2)
    assert "held_out (error, 32 rows): the prompt, or nearly its text, is in a held-out set" in said
    assert said.count("train.parquet, row") >= 3
    call("check", train, train, status=1)
    assert "train: 48 rows" in call("export", params, "trainer.total_training_steps=3", *out)


def test_bad_requests_are_one_sentence(params, tmp_path):
    for words, sentence in (
        (("check", tmp_path / "none.parquet"), "There is no file"),
        (("export", params, "data.trian=[]", "--out", tmp_path / "o"), "Unknown key 'data.trian'"),
    ):
        with pytest.raises(UserError, match=sentence):
            call(*words)
    assert not (tmp_path / "o").exists()


def test_every_source_is_listed_with_its_options():
    text = call("sources")
    assert all(kind in text for kind in sources) and "digits=2" in text
    assert "arXiv 1911.01547), through" in text, "a sentence ends at a full stop with a space behind it"


def test_the_shipped_params_build_without_a_download():
    import rlkit
    from rlkit.data import TaskStream, held_out

    config = rlkit.load(ROOT / "params/data.yaml")
    batch = TaskStream(config, held_out(config)).batch(1)
    assert len(batch) == 64 and len({t.data_source for t in batch}) >= 11
