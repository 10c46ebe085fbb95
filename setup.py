"""All metadata is in pyproject.toml; this keeps the links at the top of the repository in a source distribution."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.sdist import sdist


class SdistWithLinks(sdist):  # type: ignore[misc]
    """A source distribution with the links to packages (conf, search, agents) as links."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        """Copy the files, then make each link again: setuptools would leave it out or copy what it points to."""
        links = [path for path in Path().iterdir() if path.is_symlink()]
        names = {path.name for path in links}
        super().make_release_tree(base_dir, [each for each in files if Path(each).parts[0] not in names])
        for link in links:
            os.symlink(os.readlink(link), Path(base_dir) / link.name)


setup(cmdclass={"sdist": SdistWithLinks})
