"""`rlkit new environment NAME`: a working environment of one's own, with a test beside it."""

import keyword
import re
from pathlib import Path

from rlkit.environments.base import environments
from rlkit.errors import UserError
from rlkit.files import write_text

HERE = Path(__file__).parent
TEST = '''"""The environment {name!r} keeps the contract, and its expert succeeds."""

from pathlib import Path

from rlkit.environments import check_environment, environments
from rlkit.registry import load_plugins

load_plugins([str(Path(__file__).with_name("{name}.py"))])


def test_{name}_keeps_the_contract():
    check_environment(environments.parse("{name}"))
'''


def new_environment(name: str, folder: Path) -> tuple[Path, Path]:
    """Write an environment, line_walk under another name, and its test into `folder`; both work as they are, and
    `plugins: [<name>.py]` makes a run know it. Raises UserError for a name that is none, or is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        what = "lower-case letters, digits and underscores, and no word of Python's, e.g. tic_tac_toe"
        raise UserError(f"The name is {name!r}: use {what}.")
    source, test = folder / f"{name}.py", folder / f"test_{name}.py"
    taken = next((p for p in (source, test) if p.exists()), None)
    if taken or name in environments:
        raise UserError(f"The name {name!r} is taken{f' ({taken} exists)' if taken else ''}: choose another.")
    title = name.replace("_", " ").capitalize()
    text = (HERE / "line_walk.py").read_text()
    text = re.sub(r'^""".*"""', f'"""{title}: say in one line what happens here."""', text)
    text = text.replace("LineWalkWorld", "".join(w.capitalize() for w in name.split("_")) + "World")
    write_text(source, text.replace('"line_walk"', f'"{name}"'))
    write_text(test, TEST.format(name=name))
    return source, test
