"""Cases of tests that are data: a JSON object a line of tests/data/NAME.jsonl."""

import json
from pathlib import Path
from typing import Any


def cases(name: str) -> list[tuple[Any, ...]]:
    """The values of each row, in the order of its columns."""
    lines = (Path(__file__).parent / "data" / f"{name}.jsonl").read_text().splitlines()
    return [tuple(json.loads(line).values()) for line in lines]
