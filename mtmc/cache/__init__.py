"""The cache of winners: what searches have found, kept in the user's cache folder, so that no module is searched twice.

What is kept here is executed later. So the folder belongs to the user alone, and all that is read from it is checked.

    key.py        what a winner holds for: the reference, the example call, hardware, versions, how it was searched
    lookup.py     one optimization's question: how it would search, what it captured, what is known of it
    winners.py    the entries: find, add, list, clear
    folder.py     folders that belong to the user alone; a file for each source that is loaded
"""

from __future__ import annotations

from mtmc.cache.folder import private_folder, source_file
from mtmc.cache.key import Key, mtmc_digest
from mtmc.cache.lookup import Asked, Lookup
from mtmc.cache.winners import Cleared, Entry, Listed, WinnerCache

__all__ = [
    "Asked",
    "Cleared",
    "Entry",
    "Key",
    "Listed",
    "Lookup",
    "WinnerCache",
    "mtmc_digest",
    "private_folder",
    "source_file",
]
