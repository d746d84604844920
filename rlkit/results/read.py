"""Reading results: tidy tables from the folders that rlkit.results.store writes. Nothing here writes."""

import fnmatch
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlkit.errors import UserError
from rlkit.results.labels import labels
from rlkit.results.store import read_config, read_json, read_jsonl
from rlkit.seeds import content_hash

if TYPE_CHECKING:
    import pandas as pd

# Metrics that exist for every data_source too: "score/<data_source>", "eval/pass@1/<data_source>".
_PER_SOURCE = re.compile(r"^(score|eval/[^/]+)/(.+)$")


def read(path: str | Path, metrics: str | None = None) -> "pd.DataFrame":
    """Every logged number of a run, a study or a whole outputs folder (outputs/<study>/runs/<run>, outputs/<study> or
    outputs), one a row; only metrics that match a pattern such as "eval/*" where one is given.

    Returns the columns run, step, data_source ("all" where the metric is not of one source), metric, value; the facts
    of `run_facts`; and the config under its dotted keys ("seed", "model.path", "actor.optim.lr" …; lists of values as
    JSON text). A metric logged twice for a step counts once, the later one. Missing numbers are NaN. A UserError where
    there are no runs under `path`."""
    folders, wanted = run_folders(path), cache(partial(fnmatch.fnmatch, pat=metrics or "*"))
    tables = [table for folder in folders if (table := _whole(folder, _read_run, wanted)) is not None]
    return _joined(tables, folders)


def read_evals(path: str | Path, suite: str | None = None) -> "pd.DataFrame":
    """Every sample of the held-out tasks, or of one of `evaluation.suites`, of a run, a study or an outputs folder.

    Returns the columns of evals.parquet (step, task_id, data_source, sample, correct, value, error, tokens,
    finish_reason, response) with run, study, seed, model.path and `run_facts`. `correct` is null where the answer could
    not be graded: leave those out of means and say how many there were."""
    folders, tables = run_folders(path), []
    for folder in folders:
        if (evals := _evals(folder)) is not None:
            if "suite" in evals:
                chosen = evals["suite"].isna() if suite is None else evals["suite"] == suite
                evals = evals[chosen].drop(columns="suite")
            elif suite is not None:
                evals = evals.iloc[:0]
            tables.append(evals.assign(run=folder.name))
    return _joined(tables, folders, ("study", "seed", "model.path"))


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


def run_facts(
    folders: Sequence[Path], configs: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Of each run its id, the single values of run.json (status, parameters_total, held_out_hash, commit …), data_hash
    (equal for runs with the same tasks in the same order), cell, held_out and variant (with its place in the file):
    null for a run that its study's file does not ask for. The cell of a run made by hand is what tells it from others
    here. `configs` are theirs where they are known."""
    configs = [_whole(folder, read_config) or {} for folder in folders] if configs is None else configs
    files = {folder: folder.parent.parent / "study.json" for folder in folders}
    plans = {file: _whole(file, read_json) or {} for file in dict.fromkeys(files.values())}
    facts = [_run_json(folder, plans[file].get("runs", {})) for folder, file in files.items()]
    by_hand = [i for i, file in enumerate(files.values()) if not file.exists()]
    for i, cell in zip(by_hand, labels([flatten(configs[i]) for i in by_hand]), strict=True):
        facts[i] |= {"cell": cell, "held_out": False}
    for found, config in zip(facts, configs, strict=True):
        if "data" in config:
            found["data_hash"] = content_hash(config["data"])
    return facts


def _run_json(folder: Path, runs: Any) -> dict[str, Any]:
    """What run.json and the runs of study.json say of a run."""
    info = _whole(folder / "run.json", read_json) or {}
    single = {k: v for k, v in info.items() if isinstance(v, str | int | float) and k not in ("id", "study")}
    planned = runs.get(folder.name, {}) if isinstance(runs, dict) else {}
    place = {key: planned.get(key) for key in ("cell", "held_out")}
    if name := planned.get("variant"):
        in_order = dict.fromkeys(run.get("variant") for run in runs.values())  # that of the study's file
        place |= {"variant": name, "variant_place": list(in_order).index(name)}
    if factors := planned.get("factors"):
        place["factors"] = json.dumps(factors)
    git = info["git"] if isinstance(info.get("git"), dict) else {}
    git = {key: git[key] for key in ("commit", "dirty") if git.get(key)}
    return {"run": folder.name, "status": "unknown", **single, **git, **place}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys to values: lists of sections by index (`data.train.0.kind`), other lists as JSON text."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _whole(folder: Path, read: Callable[..., Any], *arguments: Any) -> Any:
    """What `read` makes of a run's folder or file; None, with a warning, where it is damaged."""
    try:
        return read(folder, *arguments)
    except (UserError, ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        whole = isinstance(error, UserError)  # which names the file itself
        warnings.warn(
            problem if whole else f"{folder} cannot be read and is left out: {problem}", stacklevel=3
        )
        return None


def _read_run(folder: Path, wanted: Callable[[str], bool]) -> "pd.DataFrame | None":
    import pandas as pd

    numbers: dict[tuple[int, str], float | None] = {}
    for row in read_jsonl(folder / "metrics.jsonl"):
        for name, value in row.items():
            if name not in ("step", "time") and wanted(name):
                numbers[row["step"], name] = value
    if not numbers:
        return None
    steps, names = zip(*numbers, strict=True)
    split = [match.groups() if (match := _PER_SOURCE.match(name)) else (name, "all") for name in names]
    metric, source = zip(*split, strict=True)
    values = pd.Series(list(numbers.values()), dtype=object).astype(float)
    columns = {"run": folder.name, "step": steps, "data_source": source, "metric": metric, "value": values}
    return pd.DataFrame(columns)


def _evals(folder: Path, columns: Sequence[str] | None = None) -> "pd.DataFrame | None":
    """evals.parquet, or some of its columns; None, with a warning, where it is damaged or lacks a needed column."""
    import pandas as pd
    import pyarrow.parquet as pq

    def load(path: Path) -> pd.DataFrame:
        known = pq.read_schema(path).names
        if absent := {"step", "data_source", "task_id", "correct"} - set(known):
            raise ValueError(f"it has no column {min(absent)!r}.")
        return pd.read_parquet(path, columns=[c for c in columns if c in known] if columns else None)

    path = folder / "evals.parquet"
    return _whole(path, load) if path.exists() else None


def _joined(
    tables: "list[pd.DataFrame]", folders: Sequence[Path], keys: Sequence[str] | None = None
) -> "pd.DataFrame":
    """All rows of `tables`, each with the facts of its run and the keys of its config, all of them or these."""
    import pandas as pd

    configs = [_whole(folder, read_config) or {} for folder in folders]
    flat = map(flatten, configs)
    own = [config if keys is None else {key: config.get(key) for key in keys} for config in flat]
    facts = pd.DataFrame([f | c for f, c in zip(run_facts(folders, configs), own, strict=True)])
    if not tables:
        columns = ["run", "step", "data_source", "metric", "value", *facts.columns[1:]]
        return facts.iloc[:0].reindex(columns=columns)
    table = pd.concat(tables, ignore_index=True)
    new = [column for column in facts.columns if column == "run" or column not in table.columns]
    return table.merge(facts[new], how="left", on="run", validate="many_to_one")
