"""Reading results: one damaged run is left out with a warning and spoils no other."""

import io
import json
import socket
from contextlib import nullcontext

import pandas as pd
import pytest
import yaml
from cases import table
from rich.console import Console

from rlkit.results.progress import run_state
from rlkit.results.read import read, read_configs, read_evals
from rlkit.studies.terminal import status_table


@pytest.fixture
def study(tmp_path):
    for name in ("good", "bad"):
        folder = tmp_path / "s" / "runs" / name
        folder.mkdir(parents=True)
        config = {"study": "s", "seed": 0, "model": {"path": name}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "run.json").write_text(json.dumps({"status": "finished", "git": {"commit": "abc"}}))
        (folder / "metrics.jsonl").write_text(
            json.dumps({"step": 0, "time": 1.0, "eval/pass@1": 0.5, "loss": 1.0}) + "\n"
        )
        rows = {"step": 0, "task_id": ["a", "b"], "data_source": "x", "sample": 0, "correct": [True, None]}
        pd.DataFrame(rows).assign(response="long").to_parquet(folder / "evals.parquet")
    return tmp_path / "s"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
COLUMNS, DAMAGED = table("results_damaged")


@pytest.mark.parametrize(COLUMNS, [*DAMAGED, ("metrics.jsonl", DEEP), ("run.json", DEEP)], ids=range(21))
@pytest.mark.filterwarnings("ignore:.*is left out")
def test_a_damaged_file_of_one_run_spoils_no_other(study, file, content):
    path = study / "runs" / "bad" / file
    path.write_bytes(content.replace("HOST", socket.gethostname()).encode("latin-1"))
    found = read(study)
    assert found.loc[found["run"] == "good", "value"].tolist() == [0.5, 1.0]
    told = pytest.warns(UserWarning, match=r"evals\.parquet") if path.suffix == ".parquet" else nullcontext()
    with told:
        assert set(read_evals(study)["run"]) >= {"good"}
    Console(width=200, file=(shown := io.StringIO())).print(status_table(study))
    assert "good" in shown.getvalue() or "a, seed" in shown.getvalue()
    assert run_state(study / "runs" / "good").status == "finished"


def test_a_number_that_is_missing_makes_no_run_unreadable(study):
    (study / "runs" / "bad" / "metrics.jsonl").write_text(
        '{"step": 0, "time": 1.0, "critic/score/mean": null, "eval/pass@1": null, "actor/grad_norm": null}'
    )
    assert run_state(study / "runs" / "bad").status == "finished"
    (study / "runs" / "bad" / "metrics.jsonl").write_text('{"step": "x"}\n{"step": 2}\n')
    state = run_state(study / "runs" / "bad")
    assert state.status == "unreadable" and "bad is damaged (TypeError: " in state.reason


def test_rows_have_the_keys_that_differ_and_every_key_is_joined_from_the_configs(study):
    for lr, name in ((1e-3, "good"), (2e-3, "bad")):
        actor = {"clip_ratio": 0.2, "optim": {"lr": lr, "betas": [0.9, 0.99]}}
        config = {"study": "s", "seed": 0, "model": {"path": "m"}, "actor": actor, "rollout": {"n": 8}}
        (study / "runs" / name / "config.yaml").write_text(yaml.safe_dump(config))
    found, configs = read(study), read_configs(study)
    assert found.groupby("run")["actor.optim.lr"].first().to_dict() == {"bad": 2e-3, "good": 1e-3}
    assert set(found["rollout.n"]) == {8} and "actor.clip_ratio" not in found
    assert configs.index.tolist() == ["bad", "good"] and set(configs["commit"]) == {"abc"}
    assert configs["actor.optim.betas"].tolist() == ["[0.9, 0.99]"] * 2
    joined = found.join(configs["actor.clip_ratio"], on="run")
    assert len(joined) == len(found) == 4 and set(joined["actor.clip_ratio"]) == {0.2}


@pytest.mark.parametrize("column", ["correct", "step", "task_id"])
def test_evaluations_without_a_column_are_left_out_with_a_warning(study, column):
    path = study / "runs" / "bad" / "evals.parquet"
    pd.read_parquet(path).drop(columns=column).to_parquet(path)
    told = f"bad/evals.parquet cannot be read and is left out: it has no column '{column}'"
    with pytest.warns(UserWarning, match=told):
        assert set(read_evals(study)["run"]) == {"good"}


def test_the_state_of_a_long_run_needs_its_first_last_and_evaluated_steps(study):
    rows = [{"step": k, "time": 100.0 + 2 * k, "critic/score/mean": k / 1000} for k in range(501)]
    for step, passed in ((0, 0.25), (250, 0.5)):
        rows[step]["eval/pass@1"] = passed
    log = study / "runs" / "good" / "metrics.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 501, "ti')
    state = run_state(log.parent)
    assert (state.step, state.reward, state.before, state.now) == (500, 0.5, 0.25, 0.5)
    assert state.seconds == 1000.0
