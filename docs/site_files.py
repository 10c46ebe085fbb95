"""A hook of mkdocs: pages that lie outside of docs/ are pages of the site too, and links to them are the site's.

On GitHub a page in docs/ links to "../results/README.md"; in the site both lie under one root.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
RENAMED = {"README.md": "introduction.md"}
"""A README would be the site's first page, which is docs/index.md."""
SHOWN = (".md", ".png", ".csv", ".json", ".jsonl")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the top of the repository, and the results with their pictures."""
    results = sorted(path for path in (ROOT / "results").rglob("*") if path.suffix in SHOWN)
    for path in [*(ROOT / name for name in PAGES), *results]:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, RENAMED.get(name, name), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a page's links between folders into the site's."""
    source = page.file.src_uri
    if source.startswith("results/"):
        return markdown.replace("](../docs/", "](../")
    return re.sub(
        r"\]\((?:\.\./|docs/)*(README\.md\b)?", lambda found: "](" + RENAMED.get(found[1] or "", ""), markdown
    )
