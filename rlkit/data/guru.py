"""Guru-RL-92k (Cheng et al. 2025, arXiv 2506.14965) into rlkit's rows.

Both published variants are read: ground truths of a different type per domain, and the compressed one.
File names are no data_source: the names in the rows are kept, which is what routes to a scorer.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlkit.data import rows
from rlkit.errors import UserError
from rlkit.files import write_text

HUB = "LLM360/guru-RL-92k"
VERSION = 1
"""Changes whenever a conversion's output would; converted files of another version are made again."""

PUBLISHED = {
    "math": 54_400,
    "code": 18_040,
    "logic": 6_301,
    "stem": 3_600,
    "simulation": 3_700,
    "table": 5_800,
}
"""Training rows of each domain, by the names of the published files (rounded there)."""

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


@dataclass
class Imported:
    """What an import made: rows of each file and data_source, and which files were already there."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)

    def table(self) -> list[tuple[str, int, int]]:
        """(domain, rows, rows published) for every domain."""
        found: Counter[str] = Counter()
        for counts in self.counts.values():
            for source, n in counts.items():
                found[domain(source)] += n
        return [
            (name, found[name], PUBLISHED.get(name, 0)) for name in (*PUBLISHED, *(found.keys() - PUBLISHED))
        ]


def import_guru(
    inputs: Sequence[str | Path], out: str | Path = "data/guru", *, progress: bool = True
) -> Imported:
    """Convert Guru files to rows under `out`, one parquet file each; unchanged inputs are left alone.

    Args:
        inputs: files and folders (searched for .parquet, .json and .jsonl), or ["hub"].
        out: folder for the converted files and `manifest.json`.

    Raises:
        UserError: nothing to read, an unreachable hub, or a malformed row (with file and row).
    """
    out = Path(out)
    manifest = _manifest(out)
    result = Imported()
    for source in _files(inputs, out):
        name = source.stem + ".parquet"
        known, state = (
            manifest.get(name),
            {"version": VERSION, "size": source.stat().st_size, "sha256": _digest(source)},
        )
        if known and (out / name).is_file() and all(known.get(k) == v for k, v in state.items()):
            result.unchanged.append(name)
            result.counts[name] = Counter(known["rows"])
            continue
        counts: Counter[str] = Counter()

        def counted(path: Path = source, counts: Counter[str] = counts) -> Iterator[Any]:
            for task in rows.tasks(path):
                counts[task.data_source] += 1
                yield task

        rows.write(out / name, counted(), total=rows.count(source), progress=progress)
        result.counts[name] = counts
        manifest[name] = {**state, "rows": dict(counts)}
        write_text(out / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True))
    return result


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


def _manifest(out: Path) -> dict[str, Any]:
    path = out / "manifest.json"
    try:
        return json.loads(path.read_text()) if path.is_file() else {}
    except ValueError:
        return {}  # unreadable: everything is converted again


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
