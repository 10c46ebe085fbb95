"""What `benchmarks/eviction.py` prints for a GPU and how it shows what it found; the timing needs one."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.eviction import POLICIES, page, printed
from mtmc.rewrite.templates.eviction import FORGOTTEN, KEPT, LIKE_ALL_ELSE


def test_each_policy_is_printed_and_compiled_where_there_are_loads_to_tell(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:  # it compiles for another GPU
        name, files, why = pool.submit(printed, ("softmax", "H200", tmp_path)).result()
        _, nothing, reason = pool.submit(printed, ("mlp", "no such GPU", tmp_path)).result()
    texts = {policy: Path(files[policy]).read_text() for policy in POLICIES}
    assert (name, why) == ("softmax", "") and not nothing and "ConfigError" in reason
    assert [policy for policy in POLICIES if "eviction_policy" in texts[policy]] == [KEPT, FORGOTTEN]
    assert KEPT in texts[KEPT] and FORGOTTEN in texts[FORGOTTEN]


def test_the_page_has_speedups_over_loads_that_say_nothing() -> None:
    times = {
        LIKE_ALL_ELSE: {"cold": 0.2, "loop": 0.3},
        KEPT: {"cold": 0.1, "loop": 0.2},
        FORGOTTEN: {"cold": 0.4, "loop": 0.3},
    }
    about = {"gpu": "a GPU", "torch": "2", "triton": "3", "date": "today", "command": "it"}
    text = page(about, {"task": times}, {"other": "no load to tell"})
    assert "| task | 0.2000 | 2.000x | 1.500x | 0.500x | 1.000x |" in text and "- other: no load to tell" in text
