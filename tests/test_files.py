"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mtmc.errors import RunError
from mtmc.files import write_whole, written_whole


def test_a_file_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    assert write_whole(path, "older, and longer") == path
    assert write_whole(path, "größer").read_text(encoding="utf-8") == "größer"
    assert write_whole(path, b"\x00\xff").read_bytes() == b"\x00\xff"
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


def test_it_may_be_read_by_whom_the_user_lets(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        mode = write_whole(tmp_path / "a", "x").stat().st_mode
    finally:
        os.umask(old)
    assert stat.S_IMODE(mode) == 0o644


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_whoever_stops_on_the_way_leaves_the_older_one(stop: type[BaseException], tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a", "older")
    with pytest.raises(stop), written_whole(path) as draft:
        draft.write_text("half")
        raise stop
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(RunError, match=r"taken cannot be written .*: choose a folder"):
        write_whole(tmp_path / "taken", "x")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"file/a cannot be written .*: choose a folder"):
        write_whole(tmp_path / "file" / "a", "x")
    with pytest.raises(RunError, match=r"b cannot be written .*: choose a folder"), written_whole(tmp_path / "b"):
        pass  # nothing was written to the draft
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "taken"]


def test_a_text_that_has_no_bytes_is_written_all_the_same(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a", "a\ud800b").read_text() == "a?b"
