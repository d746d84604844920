"""The rooms of the package and what they import, read from the code: for docs/architecture.md and its test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path


def in_order(root: Path) -> list[str]:
    """The rooms as the table of docs/architecture.md has them, from the command line down."""
    rows = re.findall(r"^\| (`[^|]+) \|", (root / "docs" / "architecture.md").read_text(), re.MULTILINE)
    return [name.removesuffix(".py").rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)]


def imports(root: Path) -> dict[str, set[str]]:
    """Of each module the other rooms that it imports anywhere, but for type checkers only."""
    found: dict[str, set[str]] = {}
    for path in (root / "rlkit").rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if module not in ("rlkit.__init__", "rlkit.__main__"):
            rooms = {name.split(".")[1] for name in _imported(ast.parse(path.read_text())) if "." in name}
            found[module] = rooms - {module.split(".")[1]}
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names of modules below rlkit, `from rlkit import x` as rlkit.x."""
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    left_out = {id(node) for block in typing for part in block.body for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("rlkit."))
        elif isinstance(node, ast.ImportFrom) and node.module == "rlkit":
            yield from (f"rlkit.{name.name}" for name in node.names if not name.name.startswith("_"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlkit."):
            yield str(node.module)


def _below(room: str, pairs: set[tuple[str, str]]) -> set[str]:
    """All rooms that one reaches by imports."""
    found: set[str] = set()
    ahead = [b for a, b in pairs if a == room]
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            ahead += [b for a, b in pairs if a == one]
    return found


def picture(root: Path) -> str:
    """The rooms from top to bottom as SVG, with an arrow for each import that no other path implies; rooms that
    more than half of the others import stand in a line below."""
    order = in_order(root)
    pairs = {(m.split(".")[1], room) for m, rooms in imports(root).items() for room in rooms}
    common = {room for room in order if sum(b == room for _, b in pairs) > len(order) / 2}
    drawn = [room for room in order if room not in common]
    row, width = 34, 760
    height = row * (len(drawn) + 2)
    place = {room: 20 + row * i for i, room in enumerate(drawn)}
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="rooms and imports" '
        'style="max-width:100%;font:13px sans-serif;color:inherit">'
    ]
    below = {room: _below(room, pairs) for room in order}
    for a, b in sorted(pairs, key=lambda pair: (order.index(pair[0]), order.index(pair[1]))):
        by_another = any((a, c) in pairs and b in below[c] for c in order if c not in (a, b))
        if a in place and b in place and not by_another:
            y, z = place[a] + 10, place[b] + 10
            reach = 300 + 16 * abs(drawn.index(b) - drawn.index(a))
            line = f"M 250 {y} C {reach} {y} {reach} {z} 254 {z}"
            parts.append(f'<path d="{line}" fill="none" stroke="#7a86c8"><title>{a} imports {b}</title></path>')
            parts.append(f'<path d="M 250 {z} l 7 -3 v 6 z" fill="#7a86c8"/>')
    for room, y in place.items():
        parts.append(f'<rect x="120" y="{y - 4}" width="130" height="26" rx="5" fill="none" stroke="currentColor"/>')
        parts.append(f'<text x="185" y="{y + 14}" text-anchor="middle" fill="currentColor">{room}</text>')
    parts.append(f'<text x="120" y="{height - 30}" fill="currentColor">below all: {", ".join(sorted(common))}</text>')
    return "".join(parts) + "</svg>"
