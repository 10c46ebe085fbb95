from __future__ import annotations

from pathlib import Path

import matplotlib.figure
import pytest

from mtmc.rl.curves import Panel, points_of, write_csv, write_png

ROWS = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1 / 3, "more": 5}, {"step": 3, "score": 0.5}]


def test_a_table_has_its_columns_and_six_digits(tmp_path: Path) -> None:
    write_csv(ROWS, ("step", "loss", "score"), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text().splitlines() == ["step,loss,score", "1,2,", "2,0.333333,", "3,,0.5"]


def test_a_picture_has_a_panel_for_each_number_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[matplotlib.figure.Figure] = []
    monkeypatch.setattr("mtmc.export.plots.save_figure", lambda figure, path: drawn.append(figure))
    loss, none = Panel("loss", points_of(ROWS, "step", "loss")), Panel("norm", points_of(ROWS, "step", "norm"))
    write_png([none, loss, none, none], "step", tmp_path / "a.png", border=1.5)
    write_png([Panel("loss", [(1, 1.0), (2, 2.0), (3, 6.0)])], "step", tmp_path / "b.png", smoothed=2)
    assert len(drawn[0].axes) == 3, "no row for panels that are left out"
    [plain] = [axes for axes in drawn[0].axes if axes.get_visible()]
    assert [list(line.get_ydata()) for line in plain.lines][:1] == [[2.0, 1 / 3]]
    assert plain.get_title(loc="left") == "loss" and list(plain.lines[1].get_xdata()) == [1.5, 1.5]
    [thin, thick] = next(axes for axes in drawn[1].axes if axes.get_visible()).lines
    assert (list(thin.get_ydata()), list(thick.get_ydata())) == ([1.0, 2.0, 6.0], [1.0, 1.5, 4.0])
