"""Cases of tests that are data: a JSON object a line of tests/data/NAME.jsonl."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def records(name: str) -> list[dict[str, Any]]:
    """The rows; lines end with a line feed alone, for text may hold other ends of lines."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().rstrip("\n").split("\n")]


def cases(name: str) -> list[tuple[Any, ...]]:
    """The values of each row, in the order of its columns."""
    return [tuple(row.values()) for row in records(name)]


def table(name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and values, as pytest.mark.parametrize takes them."""
    return list(records(name)[0]), cases(name)
