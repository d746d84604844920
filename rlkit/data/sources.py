"""Sources that read rows: `{kind: file, path: …}` (Guru's files, verl's data sets, one's own) and published benchmarks
by name, `{kind: benchmark, name: gsm8k}`.

A benchmark's problems come from `path` (a file, or a folder that holds one), else from the Hugging Face hub. Adding one
is adding a line to BENCHMARKS. Files in verl's columns keep their own prompts; rows in the columns of the hub are asked
in Guru's words.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import field_validator

from rlkit.domains import Source, sources
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Task

_versions: dict[str, tuple[int, int]] = {}
"""Of each file, what it was when its rows were last counted: a run that has begun goes on with those rows."""


def version(path: str) -> tuple[int, int]:
    """Time of a file's last change (ns) and its size: another one is another content."""
    from rlkit.data import rows

    found = rows.existing(path).stat()
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
        from rlkit.data.rows import to_task

        if self.path not in _versions:
            self.total()
        return to_task(_stored(self.path, _versions[self.path])[index], f"{self.path}, row {index}")

    def suite(self) -> str:
        return Path(self.path).stem


@lru_cache(16)
def _stored(path: str, _: tuple[int, int]) -> list[dict[str, Any]]:
    from rlkit.data import rows

    return list(rows.read(path))


BOX = " Please output the final answer within \\boxed{}."
Row = Mapping[str, Any]
Made = tuple[str, Any, dict[str, Any]]  # question, ground truth, extra_info


class Published(NamedTuple):
    """Where a benchmark is published and what its rows are."""

    data_source: str
    """Routes its answers to a scorer."""
    make: Callable[[Row], Made]
    """A task from a row in the published columns."""
    files: str
    """A pattern of the file's name in a folder."""
    hub: tuple[str, ...]
    """Repository on the Hugging Face hub, split, and configuration where there are several."""
    ability: str = "math"


def _math(question: str, answer: str) -> Callable[[Row], Made]:
    return lambda row: (str(row[question]).strip() + BOX, str(row[answer]).strip(), {})


def _gsm8k(row: Row) -> Made:
    return row["question"].strip() + BOX, row["answer"].rpartition("####")[2].strip().replace(",", ""), {}


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
    "human_eval": Published("codegen__humaneval", _human_eval, "*human*eval*", ("openai/openai_humaneval", "test"),
                            "codegen"),
}
# fmt: on


@sources.register("benchmark")
class Benchmark(Source):
    """A published benchmark by its name; `rlkit.data.sources` has the names. Weight 0 is evaluated and not
    trained on."""

    kind: Literal["benchmark"] = "benchmark"
    name: str
    """gsm8k, math_500, aime24, aime25, amc23 or human_eval."""
    path: str | None = None
    """A file of its rows or a folder that holds it; unset is the hub."""

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
        path = Path(self.path) if self.path else None
        if path and path.is_dir():
            pattern = BENCHMARKS[self.name].files
            files = [p for p in path.rglob("*") if p.suffix in (".parquet", ".jsonl")]
            found = [p for p in files if fnmatchcase(p.stem.lower(), pattern)]
            if len(found) != 1:
                raise UserError(
                    f"benchmark {self.name}: {path} holds {len(found) or 'no'} files named {pattern}: give the file as "
                    "path."
                )
            path = found[0]
        return published(self.name, str(path), version(str(path))) if path else published(self.name)


@lru_cache(16)
def published(name: str, path: str = "", _: tuple[int, int] = (0, 0)) -> tuple[Task, ...]:
    """The tasks of a benchmark, in their order: from this file, else from the hub."""
    from rlkit.data import rows

    known, where, tasks = BENCHMARKS[name], path or f"benchmark {name}", list[Task]()
    for k, row in enumerate(rows.read(path) if path else _downloaded(name)):
        if "reward_model" in row:  # verl's columns
            tasks.append(rows.to_task(row, f"{where}, row {k}"))
            continue
        try:
            question, truth, info = known.make(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{where}, row {k}: neither verl's columns nor those of {name} as published ({type(error).__name__}: "
                f"{error}). It has {', '.join(map(str, row))}."
            ) from None
        info = {"index": k, "split": "test", **info}
        tasks.append(Task.ask(known.data_source, question, truth, ability=known.ability, extra_info=info))
    return tuple(tasks)


def _downloaded(name: str) -> Iterator[Row]:
    import datasets

    repository, split, *configuration = BENCHMARKS[name].hub
    try:
        yield from datasets.load_dataset(repository, *configuration, split=split)  # type: ignore[misc]
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"benchmark {name}: {repository} cannot be loaded from the hub ({type(error).__name__}): download it "
            "elsewhere and give its file or folder as path, or set HF_HUB_OFFLINE=1 where it is in the cache."
        ) from None
