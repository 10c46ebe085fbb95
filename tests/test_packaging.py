"""What is distributed: a source distribution holds the whole repository, the links at its top as links."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHOLE = ("tests", "examples", "benchmarks", "docs", "results", "mtmc", "hydra_plugins")
"""Folders all of whose files are in a source distribution."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tarfile.TarInfo]:
    """Member by its path within the distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    command = ["setup.py", "-q", "egg_info", "--egg-base", str(folder), "sdist", "--dist-dir", str(folder / "dist")]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1500:]
    (path,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(path) as opened:
        return {each.name.partition("/")[2]: each for each in opened.getmembers()}


def test_a_source_distribution_is_whole(archive: dict[str, tarfile.TarInfo]) -> None:
    for folder in WHOLE:
        files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        lacking = [name for name in (path.relative_to(ROOT).as_posix() for path in files) if name not in archive]
        assert not lacking, lacking[:5]
    assert {
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "Makefile",
        "mkdocs.yml",
        "pyproject.toml",
        ".ci/run",
    } <= set(archive)
    assert not [name for name in archive if "__pycache__" in name or name.endswith(".pyc")]


def test_links_to_packages_are_links(archive: dict[str, tarfile.TarInfo]) -> None:
    links = {path.name: os.readlink(path) for path in ROOT.iterdir() if path.is_symlink()}
    assert {name: archive[name].linkname for name in links if archive[name].issym()} == links


def test_the_license_is_named() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "the mtmc authors" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'license = "Apache-2.0"' in metadata
