"""Checkpoints are whole or not there."""

import errno
import os

import pytest

from rlkit.errors import UserError
from rlkit.results.progress import checkpoint_steps
from rlkit.training import checkpoint


def write(content: str):
    def writer(folder):
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(content * 1000)
        (folder / "state.pt").write_text(content)

    return writer


def test_the_newest_k_are_kept_and_found(tmp_path):
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, step, write(str(step)), keep=2)
    assert checkpoint_steps(tmp_path) == [10, 15]
    assert checkpoint.newest(tmp_path, pytest.fail) == 15
    assert (checkpoint.folder_of(tmp_path, 15) / "state.pt").read_text() == "15"


def test_a_later_checkpoint_that_was_passed_over_goes_and_not_the_new_one(tmp_path):
    for step in (5, 10):
        checkpoint.save(tmp_path, step, write("x"), keep=2)
    checkpoint.save(tmp_path, 7, write("y"), keep=1)
    assert checkpoint_steps(tmp_path) == [7]


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "manifest"])
def test_a_broken_newest_falls_back_to_the_one_before_and_says_so(tmp_path, damage):
    for step in (5, 10):
        checkpoint.save(tmp_path, step, write("x"), keep=3)
    weights = checkpoint.folder_of(tmp_path, 10) / "model" / "weights"
    if damage == "truncate":
        os.truncate(weights, 10)
    elif damage == "flip":
        weights.write_text("y" + weights.read_text()[1:])
    elif damage == "delete":
        weights.unlink()
    else:
        (checkpoint.folder_of(tmp_path, 10) / checkpoint.MANIFEST).write_text("{")
    said = []
    assert checkpoint.newest(tmp_path, said.append) == 5
    assert len(said) == 1 and "step 10 is broken" in said[0]


def test_a_writer_that_dies_leaves_the_others_and_no_half(tmp_path):
    checkpoint.save(tmp_path, 5, write("x"), keep=2)

    def dies(folder):
        (folder / "state.pt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 10, dies, keep=2)
    assert checkpoint_steps(tmp_path) == [5]
    checkpoint.save(tmp_path, 15, write("y"), keep=2)  # and the next save sweeps the half away
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_000005", "step_000015"]


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    checkpoint.save(tmp_path, 5, write("x"), keep=1)

    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"Cannot write .*step_000010: No space left on device"):
        checkpoint.save(tmp_path, 10, full, keep=1)
    assert checkpoint.newest(tmp_path, pytest.fail) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["step_000005"]
