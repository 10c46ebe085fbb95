from __future__ import annotations

import pytest

from mtmc.outcome import Diagnosis, Outcome, Status
from mtmc.reward import VALUE_FLOOR, log_speedup, shaped_reward


def ok(runtime_ms: float) -> Outcome:
    return Outcome("ok", runtime_ms, runtime_kind="measured")


def failed(status: Status) -> Outcome:
    return Outcome(status, diagnosis=Diagnosis("check", "AssertionError", "wrong"))


def test_shaped_reward_by_hand() -> None:
    # compiles +0.1, right +0.5, faster than the previous step +1.0, less 0.02 a step
    assert shaped_reward(ok(1.0), ok(2.0), step=1) == pytest.approx(0.1 + 0.5 + 1.0 - 0.02)
    assert shaped_reward(ok(2.0), ok(1.0), step=3) == pytest.approx(0.1 + 0.5 - 0.06)
    assert shaped_reward(ok(1.0), ok(1.0), step=1, decay=0.0) == pytest.approx(0.6)
    assert shaped_reward(failed("build_error"), ok(1.0), step=2) == pytest.approx(-1.0 - 0.04)
    assert shaped_reward(failed("wrong_result"), ok(1.0), step=1) == pytest.approx(0.1 - 0.5 - 0.02)


def test_a_version_after_a_failed_one_is_not_faster_than_it() -> None:
    assert shaped_reward(ok(1.0), failed("crash"), step=1, decay=0.0) == pytest.approx(0.6)


def test_decay_makes_going_in_circles_worse_each_time() -> None:
    rewards = [shaped_reward(ok(1.0), ok(1.0), step) for step in range(1, 6)]
    assert rewards == sorted(rewards, reverse=True) and len(set(rewards)) == 5


def test_log_speedup_by_hand() -> None:
    root = ok(4.0)
    assert log_speedup(ok(1.0), root) == 2.0
    assert log_speedup(ok(4.0), root) == 0.0
    assert log_speedup(ok(8.0), root) == -1.0
    assert log_speedup(ok(4.0 * 2**10), root) == VALUE_FLOOR
    assert log_speedup(failed("timeout"), root) == VALUE_FLOOR
    assert log_speedup(failed("timeout"), root, floor=-1.5) == -1.5
