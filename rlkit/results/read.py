"""Reading results: tidy tables from the folders that rlkit.results.store writes. Nothing here writes."""

import fnmatch
import json
import re
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from rlkit.config.run import labels
from rlkit.errors import UserError
from rlkit.files import read_json
from rlkit.params import flatten
from rlkit.results.store import DAMAGE, read_config, read_jsonl
from rlkit.seeds import content_hash

KEPT = (
    "study", "seed", "model.path", "data.train_batch_size", "data.train_max_samples", "data.sft_ratio", "rollout.n",
)  # fmt: skip
"""Keys of the config that `read` gives even where all runs have one value; figures and measures look for them."""
# Texts as pandas has them by default, but rows with the same text hold one copy: 8 bytes a row.
_TEXT = pd.StringDtype("python", na_value=np.nan)


def read(path: str | Path, metrics: str | None = None) -> pd.DataFrame:
    """Every logged number of a run, a study or a whole outputs folder (outputs/<study>/runs/<run>, outputs/<study> or
    outputs), one a row; only metrics that match a pattern such as "eval/*" where one is given.

    Returns the columns run, step, data_source ("all" where the metric is not of one source), metric, value; the facts
    of `run_facts`, whose texts are categories; and of the config, under dotted keys, `KEPT` and the keys in which these
    runs differ. `read_configs` has all keys: `df.join(rlkit.read_configs(path)["actor.clip_ratio"], on="run")`. A
    metric logged twice for a step counts once, the later one. Missing numbers are NaN. A UserError without runs."""
    folders, wanted = run_folders(path), cache(partial(fnmatch.fnmatch, pat=metrics or "*"))
    tables = [_whole(folder, _read_run, wanted) for folder in folders]
    return _joined(tables, _described(folders, KEPT, differing=True))


def read_configs(path: str | Path) -> pd.DataFrame:
    """One row a run of a run, a study or an outputs folder, its id the index: the facts of `run_facts` and its whole
    config under dotted keys ("seed", "model.path", "actor.optim.lr" …; lists of values as JSON text)."""
    return _described(run_folders(path), None).set_index("run")


def read_evals(path: str | Path, suite: str | None = None) -> pd.DataFrame:
    """Every sample of the held-out tasks, or of one of `evaluation.suites`, of a run, a study or an outputs folder.

    Returns the columns of evals.parquet (step, task_id, data_source, sample, correct, value, error, tokens,
    finish_reason, response) with run, `KEPT` and `run_facts`, whose texts are categories. `correct` is null where the
    answer could not be graded: leave those out of means and say how many there were."""
    folders = run_folders(path)
    table = _joined([_evals(folder) for folder in folders], _described(folders, KEPT))
    if "suite" not in table:
        return table if suite is None else table.iloc[:0]
    chosen = table["suite"].isna() if suite is None else table["suite"] == suite
    return table[chosen].drop(columns="suite").reset_index(drop=True)


def suite_names(path: str | Path) -> list[str]:
    """The names of the suites that the runs of a run, a study or an outputs folder were evaluated on, sorted."""
    tables = [_evals(folder, ["suite"]) for folder in run_folders(path)]
    found = [table["suite"].dropna() for table in tables if table is not None and "suite" in table]
    return sorted({name for names in found for name in names})


def run_folders(path: str | Path) -> list[Path]:
    """The run folders under a run, a study or an outputs folder, sorted."""
    for pattern in ("config.yaml", "runs/*/config.yaml", "*/runs/*/config.yaml"):
        if found := sorted(file.parent for file in Path(path).glob(pattern)):
            return found
    raise UserError(f"There are no runs under {path}: give the folder of a run, of a study, or outputs.")


def run_facts(folders: Sequence[Path], configs: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Of each run its id, the single values of run.json (status, parameters_total, held_out_hash, commit …), data_hash
    (equal for runs with the same tasks in the same order), cell, held_out and variant (with its place in the file):
    null for a run that its study's file does not ask for; the cell of a run made by hand is what tells it apart."""
    configs = [_whole(folder, read_config) or {} for folder in folders] if configs is None else configs
    studies = [folder.parent.parent for folder in folders]
    plans = {study: planned_runs(study) for study in dict.fromkeys(studies)}
    # The variants of each study in the order of its file.
    variants = {s: list(dict.fromkeys(run.get("variant") for run in runs.values())) for s, runs in plans.items()}
    facts: list[dict[str, Any]] = []
    for folder, study, config in zip(folders, studies, configs, strict=True):
        info, planned = _object(folder / "run.json"), plans[study].get(folder.name, {})
        single = {k: v for k, v in info.items() if isinstance(v, str | int | float) and k not in ("id", "study")}
        git = info["git"].items() if isinstance(info.get("git"), dict) else ()
        single |= {key: value for key, value in git if key in ("commit", "dirty") and value}
        facts.append({"run": folder.name, "status": "unknown", **single})
        facts[-1] |= {key: planned.get(key) for key in ("cell", "held_out")}
        if name := planned.get("variant"):
            facts[-1] |= {"variant": name, "variant_place": variants[study].index(name)}
        if factors := planned.get("factors"):
            facts[-1]["factors"] = json.dumps(factors)
        if "data" in config:
            facts[-1]["data_hash"] = content_hash(config["data"])
    by_hand = [i for i, study in enumerate(studies) if not (study / "study.json").exists()]
    for i, cell in zip(by_hand, labels([flatten(configs[i]) for i in by_hand]), strict=True):
        facts[i] |= {"cell": cell, "held_out": False}
    return facts


def planned_runs(study: Path) -> dict[str, dict[str, Any]]:
    """What study.json of outputs/<study> says of each run that the study's file asks for, by the run's id."""
    runs = _object(study / "study.json").get("runs")
    known = runs.items() if isinstance(runs, dict) else ()
    return {name: run for name, run in known if isinstance(run, dict) and "cell" in run}


def _object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; nothing where there is none, and with a warning where it is damaged."""
    if not (content := read_json(path)) and path.exists():
        warnings.warn(f"{path} cannot be read and is left out: it holds no JSON object.", stacklevel=3)
    return content


def _whole(folder: Path, read: Callable[..., Any], *arguments: Any) -> Any:
    """What `read` makes of a run's folder or file; None, with a warning, where it is damaged."""
    try:
        return read(folder, *arguments)
    except DAMAGE as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not isinstance(error, UserError):  # which names the file itself
            problem = f"{folder} cannot be read and is left out: {problem}"
        warnings.warn(problem, stacklevel=3)
        return None


def _read_run(folder: Path, wanted: Callable[[str], bool]) -> pd.DataFrame | None:
    numbers: dict[tuple[int, str], float | None] = {}
    for row in read_jsonl(folder / "metrics.jsonl"):
        for name, value in row.items():
            if name not in ("step", "time") and wanted(name):
                numbers[row["step"], name] = value
    if not numbers:
        return None
    texts = [(folder.name, *_split(name)) for _, name in numbers]
    table = pd.DataFrame(texts, columns=["run", "data_source", "metric"], dtype=_TEXT)
    table.insert(1, "step", [step for step, _ in numbers])
    return table.assign(value=pd.Series(list(numbers.values()), dtype=object).astype(float))


@cache
def _split(name: str) -> tuple[str, str]:
    """data_source and metric of a logged name, e.g. eval/pass@1/<data_source>; each text exists once for all rows."""
    match = re.match(r"(score|eval/(?!response_length/)[^/]+)/(.+)$", name)
    return (match[2], match[1]) if match else ("all", name)


def _evals(folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame | None:
    """evals.parquet, or some of its columns; None, with a warning, where it is damaged or lacks a needed column."""

    def load(path: Path) -> pd.DataFrame:
        known = pq.read_schema(path).names
        if absent := {"step", "data_source", "task_id", "correct"} - set(known):
            raise ValueError(f"it has no column {min(absent)!r}.")
        return pd.read_parquet(path, columns=[c for c in columns if c in known] if columns else None)

    path = folder / "evals.parquet"
    return _whole(path, load) if path.exists() else None


def _described(folders: Sequence[Path], kept: Sequence[str] | None, differing: bool = False) -> pd.DataFrame:
    """A row a run: `run_facts`, texts as categories, and its config's keys, or those `kept`, or `differing` in runs."""
    configs = [_whole(folder, read_config) or {} for folder in folders]
    flat = list(map(flatten, configs))
    known = dict.fromkeys(key for config in flat for key in config)
    differ = {key for key in known if differing and len({config.get(key) for config in flat}) > 1}
    chosen = [key for key in known if kept is None or key in differ.union(kept)]
    rows = zip(run_facts(folders, configs), flat, strict=True)
    table = pd.DataFrame([facts | {key: config.get(key) for key in chosen} for facts, config in rows])
    names = {"run", "cell", "variant", *chosen}
    texts = [column for column in table if table[column].dtype == "str"]
    return table.astype({column: _TEXT if column in names else "category" for column in texts})


def _joined(tables: list[pd.DataFrame | None], runs: pd.DataFrame) -> pd.DataFrame:
    """All rows of the tables, one a run or None, each with the columns of its run."""
    sizes = [0 if table is None else len(table) for table in tables]
    if all(table is None for table in tables):
        return runs.iloc[:0].assign(**dict.fromkeys(("step", "data_source", "metric", "value")))
    table = pd.concat(tables, ignore_index=True)
    tables.clear()  # of a thousand runs they take a quarter of a gigabyte
    rows = runs.loc[np.repeat(runs.index, sizes), [column for column in runs if column not in table]]
    return pd.concat([table, rows.set_axis(table.index)], axis=1)
