"""The cgroup of a jail, on a tree of plain files: where it goes, what is written, how a command enters it."""

import subprocess

import pytest

from rlkit.rewards.sandbox import levels


@pytest.fixture
def tree(tmp_path):
    """A hierarchy whose `app` slice passes memory on and holds this process in `app/me`."""
    me = tmp_path / "app/me"
    me.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    for folder, controllers in ((tmp_path, "cpu"), (tmp_path / "app", "cpu memory"), (me, "")):
        (folder / "cgroup.subtree_control").write_text(controllers)
    return tmp_path


def test_the_nearest_cgroup_that_passes_memory_on(tree):
    assert levels.group_folder(tree, "/app/me") == tree / "app"
    (tree / "app/cgroup.subtree_control").write_text("cpu")
    assert levels.group_folder(tree, "/app/me") is None


def test_none_without_version_two(tmp_path):
    assert levels.group_folder(tmp_path, "/") is None


def test_a_group_limits_the_sum_and_a_command_starts_inside(tree):
    group = levels.Group(tree / "app", "jail", 1 << 20)
    assert (group.folder / "memory.max").read_text() == str((1 << 20) + levels.OWN)
    done = subprocess.run(group.command(["/bin/sh", "-c", "echo $$"]), capture_output=True, text=True)
    assert done.stdout == (group.folder / "cgroup.procs").read_text()  # its own process id, before it began
    assert group.kills() == 0
    (group.folder / "memory.events").write_text("max 3\noom 2\noom_kill 2\n")
    assert group.kills() == 2


def test_a_group_without_a_limit_is_not_kept(tree, monkeypatch):
    monkeypatch.setattr("pathlib.Path.write_text", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with pytest.raises(PermissionError):
        levels.Group(tree / "app", "jail", 1)
    assert not (tree / "app/jail").exists()
