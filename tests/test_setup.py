"""The set-up's shell scripts."""

import os
import pty
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def install(venv: Path, script: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    command = ["sh", str(ROOT / "setup-progress.sh"), str(venv), "sh", "-c", script]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)


def test_an_installation_that_succeeds_is_quiet_and_keeps_what_it_said(tmp_path):
    done = install(tmp_path, "echo Collecting torch; echo careful >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "install.log").read_text() == "Collecting torch\ncareful\n"


def test_an_installation_that_fails_shows_its_end_and_its_status(tmp_path):
    done = install(tmp_path, "seq 100; echo ERROR: no such version >&2; exit 3")
    assert done.returncode == 3
    *shown, last = done.stderr.splitlines()
    assert shown == [*map(str, range(82, 101)), "ERROR: no such version"]
    assert last.endswith(f"is in {tmp_path}/install.log.")


def test_a_terminal_sees_how_far_an_installation_is(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    steps = (
        "echo Collecting torch; sleep 2.5; echo 'Installing collected packages: numpy, torch, rlkit'; "
        f"mkdir {site}/numpy-2.dist-info; sleep 2.5"
    )
    ours, theirs = pty.openpty()
    install(tmp_path, steps, stdout=theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "s: 1 packages found. Collecting torch" in shown
    assert "s: 1 of 3 packages installed" in shown
