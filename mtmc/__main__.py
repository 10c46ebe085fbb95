"""`python -m mtmc` is the `mtmc` command."""

from __future__ import annotations

import sys

from mtmc.cli import main

if __name__ == "__main__":
    sys.exit(main())
