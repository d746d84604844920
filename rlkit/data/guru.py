"""Guru-RL-92k (Cheng et al. 2025, arXiv 2506.14965) into rlkit's rows.

Both published variants are read: ground truths of a different type per domain, and the compressed one.
File names are no data_source: the names in the rows are kept, which is what routes to a scorer.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlkit.data import rows
from rlkit.errors import UserError

HUB = "LLM360/guru-RL-92k"
_PREFIXES = {
    "math": "math",
    "codegen": "code",
    "simulation__arcagi": "logic",
    "simulation__barc": "logic",
    "logic": "logic",
    "simulation": "simulation",
    "stem": "stem",
    "table": "table",
    "graph_logical": "logic",
    "ordering_puzzle": "logic",
    "zebra_puzzle": "logic",
}


def domain(data_source: str) -> str:
    """The Guru domain of a data_source (ARC and BARC are logic there); "other" for unknown names."""
    return next((name for prefix, name in _PREFIXES.items() if data_source.startswith(prefix)), "other")


def import_guru(
    inputs: Sequence[str | Path], out: str | Path = "data/guru", *, progress: bool = True
) -> dict[str, Counter[str]]:
    """Convert Guru files to rows under `out`, one parquet file each.

    Args:
        inputs: files and folders (searched for .parquet, .json and .jsonl), or ["hub"].
        out: folder for the converted files.

    Returns:
        By the name of the converted file, its rows of each data_source.

    Raises:
        UserError: nothing to read, an unreachable hub, or a malformed row (with file and row).
    """
    out, converted = Path(out), {}
    for source in _files(inputs, out):
        counts: Counter[str] = Counter()

        def counted(path: Path = source, counts: Counter[str] = counts) -> Iterator[Any]:
            for task in rows.tasks(path):
                counts[task.data_source] += 1
                yield task

        name = source.stem + ".parquet"
        rows.write(out / name, counted(), total=rows.count(source), progress=progress)
        converted[name] = counts
    return converted


def _files(inputs: Sequence[str | Path], out: Path) -> list[Path]:
    if list(inputs) == ["hub"]:
        return _files([_download()], out)
    found: list[Path] = []
    for item in map(Path, inputs):
        if not item.exists():
            raise UserError(
                f"There is no file or folder {item} to import: give a Guru file, its folder, or hub."
            )
        inside = sorted(p for p in item.rglob("*") if p.suffix in {".parquet", ".json", ".jsonl"})
        found += inside if item.is_dir() else [item]
    found = [p for p in found if out.resolve() not in p.resolve().parents]
    if not found:
        raise UserError(f"{', '.join(map(str, inputs))} holds no .parquet, .json or .jsonl file.")
    twice = [name for name, n in Counter(p.stem for p in found).items() if n > 1]
    if twice:
        raise UserError(
            f"Several files are named {twice[0]}: import their folders into different --out folders."
        )
    return found


def _download() -> Path:
    """The data set's training files, in the hub's cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(HUB, repo_type="dataset", allow_patterns=["train/*.parquet"]))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"Cannot download {HUB} ({type(error).__name__}): download its train folder elsewhere and "
            "give that folder."
        ) from None
