"""The set-up's shell scripts."""

import os
import pty
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def begin(venv: Path, script: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    command = ["sh", str(ROOT / "setup-progress.sh"), str(venv), "sh", "-c", script]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_an_installation_that_succeeds_is_quiet_and_one_that_fails_shows_its_end(tmp_path):
    process = begin(tmp_path, "echo Collecting torch; echo careful >&2")
    assert (*process.communicate(), process.returncode) == ("", "", 0)
    assert (tmp_path / "install.log").read_text() == "Collecting torch\ncareful\n"
    process = begin(tmp_path / "again", "seq 100; echo ERROR: no such version >&2; exit 3")
    *shown, last = process.communicate()[1].splitlines()
    assert process.returncode == 3
    assert shown == [*map(str, range(82, 101)), "ERROR: no such version"]
    assert last.endswith(f"is in {tmp_path}/again/install.log.")


def test_a_terminal_sees_how_far_an_installation_is(tmp_path):
    site, seen = tmp_path / "lib" / "python3.11" / "site-packages", "while [ ! -e {} ]; do sleep 0.05; done; "
    steps = "echo Collecting torch; " + seen.format(tmp_path / "first")
    steps += f"echo 'Installing collected packages: numpy, torch, rlkit'; mkdir {site}/numpy-2.dist-info; "
    ours, theirs = pty.openpty()
    process = begin(tmp_path, steps + seen.format(tmp_path / "second"), stdout=theirs)
    texts = {"first": "s: 1 packages found. Collecting torch", "second": "s: 1 of 3 packages installed"}
    shown = dict.fromkeys(texts, "")
    for go_on, text in texts.items():
        while text not in shown[go_on] and shown[go_on].count("\r") < 60:  # a line a second
            shown[go_on] += os.read(ours, 10_000).decode()
        (tmp_path / go_on).touch()
    assert process.wait() == 0 and all(text in shown[go_on] for go_on, text in texts.items())
    os.close(ours)
    os.close(theirs)
