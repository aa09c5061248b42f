"""Files that appear whole or not at all, and never in place of others unless asked to."""

import os
from pathlib import Path

import pytest

from seachange.errors import OutputError, SeachangeError
from seachange.outputs import claim_file, claim_folder, recorded_outputs, written_whole

needs_proc = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="/proc is a folder nobody can write into")


@pytest.fixture
def existing(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text("old")
    return path


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_output_error_is_ours_and_an_os_error(existing):
    with pytest.raises(OutputError) as caught:
        claim_file(existing, force=False)
    assert isinstance(caught.value, SeachangeError)
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("as_type", [str, Path])
def test_claiming_a_new_file_gives_its_path_and_leaves_no_trace(tmp_path, force, as_type):
    assert claim_file(as_type(tmp_path / "new.txt"), force=force) == tmp_path / "new.txt"
    assert names_in(tmp_path) == []


def test_claiming_an_existing_file_needs_force(tmp_path, existing):
    with pytest.raises(OutputError, match=r"old\.txt' already exists. Overwrite it with force=True"):
        claim_file(existing, force=False)
    assert claim_file(existing, force=True) == existing
    assert existing.read_text() == "old"
    assert names_in(tmp_path) == ["old.txt"]


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_cannot_be_claimed_as_a_file(tmp_path, force):
    with pytest.raises(OutputError, match="is a folder; choose a file"):
        claim_file(tmp_path, force=force)


@pytest.mark.parametrize("force", [True, False])
def test_a_file_in_no_folder_cannot_be_claimed(tmp_path, existing, force):
    with pytest.raises(OutputError, match=r"cannot write into the folder '.*nowhere'"):
        claim_file(tmp_path / "nowhere" / "new.txt", force=force)
    with pytest.raises(OutputError, match=r"cannot write into the folder '.*old\.txt'"):
        claim_file(existing / "new.txt", force=force)
    assert names_in(tmp_path) == ["old.txt"]


@needs_proc
def test_a_folder_nobody_can_write_into_cannot_be_claimed():
    with pytest.raises(OutputError, match="cannot write into the folder '/proc'"):
        claim_file("/proc/new.txt", force=False)
    with pytest.raises(OutputError, match="/proc"):
        claim_folder("/proc", force=True)
    with pytest.raises(OutputError, match="/proc/new"):
        claim_folder("/proc/new", force=False)


def test_claiming_a_new_folder_makes_it_with_its_parents(tmp_path):
    target = tmp_path / "a" / "b"
    assert claim_folder(str(target), force=False) == target
    assert target.is_dir()
    assert names_in(target) == []
    assert claim_folder(target, force=False) == target  # empty: nothing there to write over


def test_claiming_a_folder_with_files_in_it_needs_force(tmp_path, existing):
    with pytest.raises(OutputError, match=r"is not empty\. Write into it with force=True"):
        claim_folder(tmp_path, force=False)
    assert claim_folder(tmp_path, force=True) == tmp_path
    assert existing.read_text() == "old"
    assert names_in(tmp_path) == ["old.txt"]


@pytest.mark.parametrize("force", [True, False])
def test_a_file_cannot_be_claimed_as_a_folder(existing, force):
    with pytest.raises(OutputError, match="is a file; choose a folder"):
        claim_folder(existing, force=force)
    with pytest.raises(OutputError, match="cannot be created"):
        claim_folder(existing / "inside", force=force)
    assert existing.read_text() == "old"


def test_a_file_appears_when_the_block_ends_and_not_before(tmp_path):
    target = tmp_path / "new.txt"
    with written_whole(target) as beside:
        beside.write_text("half")
        assert not target.exists()
        beside.write_text("whole")
    assert target.read_text() == "whole"
    assert names_in(tmp_path) == ["new.txt"]


def test_an_existing_file_stays_until_the_block_ends(tmp_path, existing):
    with written_whole(existing) as beside:
        beside.write_text("new")
        assert existing.read_text() == "old"
    assert existing.read_text() == "new"
    assert names_in(tmp_path) == ["old.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_leaves_things_as_they_were(tmp_path, existing, error):
    def fail(path):
        with written_whole(path) as beside:
            beside.write_text("half")
            raise error

    for path in (tmp_path / "new.txt", existing):
        with pytest.raises(error):
            fail(path)
    assert names_in(tmp_path) == ["old.txt"]
    assert existing.read_text() == "old"


def test_the_path_to_write_to_has_the_suffix_of_the_target(tmp_path):
    with written_whole(tmp_path / "figure.png") as beside:
        assert beside.suffix == ".png"
        assert beside.parent == tmp_path


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain.txt").write_text("")
    with written_whole(tmp_path / "whole.txt") as beside:
        beside.write_text("")
    assert (tmp_path / "whole.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_writing_into_no_folder_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="nowhere"), written_whole(tmp_path / "nowhere" / "new.txt"):
        pass


def test_writing_over_a_folder_is_an_output_error(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="folder"), written_whole(tmp_path / "folder") as beside:
        beside.write_text("")
    assert names_in(tmp_path) == ["folder"]


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path):
    if os.name != "posix":
        pytest.skip("devices of POSIX")
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(OutputError, match="is not a regular file"):
            claim_file(place, force=True)
        with pytest.raises(OutputError, match="is not a regular file"), written_whole(place):
            pass
        assert not Path(place).is_file()


def test_what_a_link_points_to_is_written_and_the_link_stays(tmp_path, existing):
    link = tmp_path / "elsewhere" / "link.txt"
    link.parent.mkdir()
    link.symlink_to(existing)
    with written_whole(link) as beside:
        beside.write_text("new")
    assert link.is_symlink()
    assert existing.read_text() == "new"
    assert names_in(tmp_path) == ["elsewhere", "old.txt"]


def test_outputs_are_noted_once_they_are_whole(tmp_path):
    with recorded_outputs() as written:
        with written_whole(tmp_path / "one.txt") as beside:
            beside.write_text("one")
            assert written == []
        assert written == [tmp_path / "one.txt"]
        with pytest.raises(ValueError, match="half"), written_whole(tmp_path / "two.txt"):
            raise ValueError("half")
        assert written == [tmp_path / "one.txt"]
    with written_whole(tmp_path / "three.txt") as beside:
        beside.write_text("three")
    assert written == [tmp_path / "one.txt"]
