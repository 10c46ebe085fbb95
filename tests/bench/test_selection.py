"""Which problems are taken, and which files of others are for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.bench.candidates import match_candidates
from mtmc.bench.problem import Problem
from mtmc.bench.selection import as_asked, select
from mtmc.bench.settings import BenchSettings
from mtmc.errors import ConfigError

PROBLEMS = [
    *(
        Problem("level1", n, f"{n}_{name}", Path())
        for n, name in ((1, "ReLU"), (2, "Softmax"), (5, "Sum"), (10, "Max"))
    ),
    *(Problem("level2", n, f"{n}_{name}", Path()) for n, name in ((1, "Conv_ReLU"), (5, "Gemm"), (7, "Max"))),
]


def chosen(**settings: object) -> list[str]:
    return [each.id for each in select(PROBLEMS, BenchSettings(**settings))]  # type: ignore[arg-type]


def test_all_by_default_in_order() -> None:
    assert chosen() == [each.id for each in PROBLEMS]


def test_levels_numbers_names_and_every() -> None:
    assert chosen(levels=("2",)) == ["level2/1_Conv_ReLU", "level2/5_Gemm", "level2/7_Max"]
    assert chosen(levels=("level1",), problems=("2", "10")) == ["level1/2_Softmax", "level1/10_Max"]
    assert chosen(problems=("5",)) == ["level1/5_Sum", "level2/5_Gemm"]
    assert chosen(problems=("2/7", "level1/ReLU", "Gemm")) == ["level1/1_ReLU", "level2/5_Gemm", "level2/7_Max"]
    assert chosen(every=5) == ["level1/5_Sum", "level1/10_Max", "level2/5_Gemm"]


def test_what_is_named_first_is_begun_first() -> None:
    settings = BenchSettings(problems=("2/7", "10", "level1/ReLU", "5", "Conv_ReLU", "1"), every=1)
    begun = [each.id for each in as_asked(select(PROBLEMS, settings), settings)]
    assert begun[:3] == ["level2/7_Max", "level1/10_Max", "level1/1_ReLU"]
    assert begun[3:] == ["level1/5_Sum", "level2/5_Gemm", "level2/1_Conv_ReLU"]
    assert as_asked(PROBLEMS, BenchSettings()) == PROBLEMS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"levels": ("4",)}, "the suite has no level '4': use level1, level2"),
        ({"problems": ("Softmx",)}, "no problem 'Softmx': did you mean"),
        ({"problems": ("3",)}, "no problem '3': there are 1_ReLU, 2_Softmax"),
        ({"problems": ("2/2",)}, "no problem '2/2'"),
        ({"levels": ("2",), "every": 4}, "no problem is left with every=4"),
    ],
)
def test_what_is_not_there_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        chosen(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"every": 0}, "every cannot be 0"),
        ({"jobs": -1}, "jobs cannot be -1"),
        ({"minutes": 0.0}, "minutes cannot be 0"),
        ({"problem_minutes": -2.0}, "problem_minutes cannot be -2"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BenchSettings(**settings)  # type: ignore[arg-type]


def files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("class ModelNew: ...\n")
    return folder


def matched(folder: Path, problems: list[Problem] = PROBLEMS) -> dict[str, list[str]]:
    found = match_candidates(folder, problems)
    named = {each: [str(path.relative_to(folder)) for path in paths] for each, paths in found.by_problem.items()}
    return {**named, **({"": [path.name for path in found.unmatched]} if found.unmatched else {})}


def test_candidates_by_name_number_level_and_sample(tmp_path: Path) -> None:
    names = (
        "1_ReLU.py",
        "Softmax.py",
        "level1/10.py",
        "level2/5.py",
        "level_2_problem_1_sample_0_kernel.py",
        "level_2_problem_1_sample_1_kernel.py",
        "5_Sum_sample_3.py",
        "readme.py",
    )
    assert matched(files(tmp_path, *names)) == {
        "level1/1_ReLU": ["1_ReLU.py"],
        "level1/2_Softmax": ["Softmax.py"],
        "level1/10_Max": ["level1/10.py"],
        "level1/5_Sum": ["5_Sum_sample_3.py"],
        "level2/5_Gemm": ["level2/5.py"],
        "level2/1_Conv_ReLU": ["level_2_problem_1_sample_0_kernel.py", "level_2_problem_1_sample_1_kernel.py"],
        "": ["readme.py"],
    }


def test_a_number_of_one_level_alone_is_enough(tmp_path: Path) -> None:
    assert matched(files(tmp_path, "5.py"), PROBLEMS[:4]) == {"level1/5_Sum": ["5.py"]}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("5.py",), r"5.py is for several problems \(level1/5_Sum, level2/5_Gemm\)"),
        (("Max.py",), r"Max.py is for several problems"),
        (("other.py",), r"no file in .* is for a chosen problem \(it has other.py\)"),
        ((), r"it has no .py files"),
    ],
)
def test_candidates_that_are_for_none_or_several(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        matched(files(tmp_path, *names))


def test_no_folder_of_candidates(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        match_candidates(tmp_path / "nowhere", PROBLEMS)
