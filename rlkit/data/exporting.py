"""A run's data as files: rlkit's rows, verl's, TRL's or JSON lines, in the order of the mixture."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rlkit.config import RunConfig
from rlkit.data import rows
from rlkit.data.reference import reference_response
from rlkit.data.stream import TaskStream, held_out, suites
from rlkit.errors import UserError
from rlkit.types import Task

Form = Literal["rows", "verl", "trl", "jsonl"]

VERL_SCHEMA = rows.SCHEMA.set(
    rows.SCHEMA.get_field_index("extra_info"),
    pa.field("extra_info", pa.struct({"index": pa.int64(), "split": pa.string(), "json": pa.string()})),
)
"""verl 0.9.1 reads keys of extra_info, so there it is a struct: everything else is in its `json`."""
MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
SFT_SCHEMA = pa.schema({"messages": MESSAGES, "data_source": pa.string(), "id": pa.string()})


def export(
    config: RunConfig, out: str | Path, form: Form = "verl", *, progress: bool = True
) -> dict[str, int]:
    """Write `train`, `test` (held-out tasks and suites) and, with `data.sft_ratio`, `sft` under `out`.

    `train` has the rows of all steps, step after step: read it without shuffling. `sft` has the set-aside
    part of `data.train_max_samples` unique tasks (or as many as the ratio makes of the steps' tasks), with
    worked solutions where the source has them.

    Returns the number of rows of each file. Raises UserError for an adaptive order, which has none before
    the run.
    """
    if config.data.order == "adaptive":
        raise UserError("data.order is adaptive, which depends on the run: export another order.")
    out, tests = Path(out), held_out(config)
    tests += [task for tasks in suites(config).values() for task in tasks]
    total = config.trainer.total_training_steps * config.data.train_batch_size
    stream = TaskStream(config, tests)
    stream.batch(1)  # what is wrong with the sources shows before a file is begun
    train = (task for batch in stream for task in batch)
    written = {}
    for name, tasks, count in (("train", train, total), ("test", tests, len(tests))):
        split = {"split": name} if form == "verl" else {}
        written[name] = _write(out / name, tasks, form, count, progress, **split)
    if config.data.sft_ratio:
        supervised = TaskStream(config, tests, side="sft").first(sft_size(config))
        written["sft"] = write_sft(out / f"sft{FORMS[form][0]}", supervised, progress)
    return written


def convert(
    files: Iterable[str | Path], out: str | Path, form: Form = "verl", *, progress: bool = True
) -> int:
    """Write the rows of prepared files as one file `<out>.parquet` or `<out>.jsonl`; the number written."""
    paths = list(files)
    counts = [rows.count(p) for p in paths]
    total = None if None in counts else sum(n for n in counts if n is not None)
    return _write(Path(out), (task for path in paths for task in rows.tasks(path)), form, total, progress)


def sft_size(config: RunConfig) -> int:
    """Rows of the supervised part: the ratio of D, or what stands to the steps' tasks as the ratio says."""
    ratio, unique = config.data.sft_ratio, config.data.train_max_samples
    if unique > 0:
        return round(unique * ratio)
    if ratio == 1:
        raise UserError("data.sft_ratio is 1 without data.train_max_samples: say how many tasks there are.")
    total = config.trainer.total_training_steps * config.data.train_batch_size
    return round(total * ratio / (1 - ratio))


def write_sft(path: Path, tasks: Sequence[Task], progress: bool = True) -> int:
    """Chat rows (`messages`) that end with a right answer; tasks without one are an error."""

    def chats() -> Iterator[dict[str, Any]]:
        for task in tasks:
            response = reference_response(task)
            if response is None:
                raise UserError(
                    f"A task of {task.data_source} (id {task.id}) has no reference solution to train on: "
                    "leave this source out of the supervised part, or add extra_info.solution."
                )
            messages = [*task.prompt, {"role": "assistant", "content": response}]
            yield {"messages": messages, "data_source": task.data_source, "id": task.id}

    schema = SFT_SCHEMA if path.suffix == ".parquet" else None
    return rows.write_rows(path, chats(), schema, total=len(tasks), progress=progress)


def verl_row(task: Task, split: str | None = None) -> dict[str, Any]:
    """The row that verl reads; `from_verl` undoes it in the reward function. `split` is the file's: train or
    test; without it, the task's own."""
    info = dict(task.extra_info)
    index = info.get("index")
    extra = {
        "index": index if isinstance(index, int) else 0,
        "split": split or str(info.get("split", "train")),
        "json": json.dumps(info),
    }
    return {**rows.to_row(task), "extra_info": extra}


def from_verl(ground_truth: str, extra_info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Ground truth and extra_info of a row that `verl_row` made, as scorers want them; what verl adds to
    extra_info at run time is kept."""
    added = {k: v for k, v in extra_info.items() if k not in {"index", "split", "json"}}
    return json.loads(ground_truth), {**json.loads(extra_info["json"]), **added}


def trl_row(task: Task) -> dict[str, Any]:
    """A conversational prompt-only row; other columns reach TRL's reward functions as keyword arguments."""
    row = task.to_row()
    truth = row.pop("reward_model")["ground_truth"]
    return {**row, "ground_truth": truth}


FORMS: dict[Form, tuple[str, Callable[[Task], Mapping[str, Any]], pa.Schema | None]] = {
    "rows": (".parquet", rows.to_row, rows.SCHEMA),
    "verl": (".parquet", verl_row, VERL_SCHEMA),
    "trl": (".jsonl", trl_row, None),
    "jsonl": (".jsonl", rows.to_row, None),
}
"""Of each form: the file's suffix, what makes a row of a task, and the schema of a parquet file."""


def _write(
    stem: Path, tasks: Iterable[Task], form: Form, total: int | None, progress: bool, **options: Any
) -> int:
    suffix, make, schema = FORMS[form]
    path = stem.with_name(stem.name + suffix)
    return rows.write_rows(path, (make(t, **options) for t in tasks), schema, total=total, progress=progress)
