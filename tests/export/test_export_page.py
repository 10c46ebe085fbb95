"""tree.html: self-contained, safe against what kernels and models write, and showing all there is to show."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mtmc.export import RunRecord, to_html, write_html
from mtmc.export.page import page_data
from tests.browser import asked, browse, needs_chromium


class Page(HTMLParser):
    """The elements of a page, and the texts of its scripts and style, as a browser's parser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag in ("script", "style", "title")
        if self.open:
            self.raw.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.raw[-1] = (self.raw[-1][0], self.raw[-1][1] + data)

    def texts(self, tag: str) -> list[str]:
        return [text for name, text in self.raw if name == tag]


def test_the_page_needs_nothing_else(record: RunRecord) -> None:
    text = to_html(record)
    page = Page(text)
    for _, attributes in page.tags:
        assert {"src", "href", "srcset", "action", "style"}.isdisjoint(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert set(re.findall(r"https?://[^\"'\s]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in text and "url(" not in text


def test_only_the_pages_own_script_and_style_may_run(record: RunRecord) -> None:
    page = Page(to_html(record))
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    data, script = page.texts("script")
    assert policy == f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(page.texts('style')[0])}'"
    assert json.loads(data) == json.loads(json.dumps(page_data(record)))


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_hostile_texts_stay_text(hostile: RunRecord, record: RunRecord) -> None:
    text = to_html(hostile)
    page, other = Page(text), Page(to_html(record))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in other.tags]
    data, script = page.texts("script")
    assert script == other.texts("script")[1]  # a placeholder's name within the data is not filled in
    assert "<" not in data and json.loads(data)["task"] == hostile.tree.task_name
    assert page.texts("title") == [f"{hostile.tree.task_name[:79]}\u2026 - mtmc"]
    assert text.encode() and "innerHTML" not in script and "insertAdjacent" not in script


def test_the_data_hold_every_fact(record: RunRecord) -> None:
    data = page_data(record)
    nodes = data["nodes"]
    for node, shown in zip(record.tree, nodes, strict=True):
        assert "\n".join(data["lines"][line] for line in shown["source"]) + "\n" == node.source
    assert data["best"] == 7 and data["path"] == [0, 1, 4, 7]
    assert nodes[7]["speedup"] == pytest.approx(3.2) and nodes[7]["runtime_kind"] == "estimated"
    assert nodes[3]["diagnosis"]["line"] == 12 and "speedup" not in nodes[3]
    assert data["actions"][nodes[7]["action"]]["sentence"].startswith("vectorize gelu_softmax")
    legal = [(data["actions"][index]["kind"], prior) for index, prior in nodes[4]["legal"]]
    assert legal == [("vectorize", 0.4), ("vectorize", 0.3), ("tile", 0.2), ("stop", 0.1)]
    assert nodes[0]["notes"] == {"prior": 1.0, "value": 0.0, "visits": 10.0} and "parent" not in nodes[0]


def test_lines_that_versions_share_are_stored_once(big_record: Callable[[int], RunRecord]) -> None:
    small, large = len(to_html(big_record(100))), len(to_html(big_record(1100)))
    assert (large - small) / 1000 < 1200  # bytes a version, whose source alone has about 1,400


def test_equal_runs_give_equal_pages(record: RunRecord) -> None:
    assert to_html(record) == to_html(record)


@needs_chromium
def test_a_browser_draws_the_page(record: RunRecord, tmp_path: Path) -> None:
    drawn = browse(f"file://{write_html(record, tmp_path / 'tree.html')}#3")
    cards = re.findall(r'<div class="card ([^"]*)" id="n(\d+)"', drawn)
    assert sorted(int(number) for _, number in cards) == list(range(11))
    assert {int(number) for classes, number in cards if "onpath" in classes} == {0, 1, 4, 7}
    assert [number for classes, number in cards if "selected" in classes] == ["3"]
    assert "NameError(" in drawn and 'class="row out"' in drawn and 'class="row in"' in drawn
    assert drawn.count('<g class="mark') == 10 and '<path class="curve"' in drawn


@needs_chromium
def test_a_browser_runs_nothing_of_a_hostile_run(hostile: RunRecord, tmp_path: Path) -> None:
    drawn = browse(f"file://{write_html(hostile, tmp_path / 'tree.html')}#2")
    assert "<title>PWNED" not in drawn and "<img" not in drawn
    assert drawn.count("<script") == 2 and drawn.count('class="card ') == 3


LOOK = """
  const box = (element) => element.getBoundingClientRect();
  const within = (id) => { const inner = box(view.cards.get(id)), outer = box(canvas);
    const across = inner.left >= outer.left && inner.right <= outer.right;
    return across && inner.top >= outer.top && inner.bottom <= outer.bottom; };
"""

WHOLE = """
  const first = { root: within(0), text: view.scale, map: map.hidden };
  for (let click = 0; closed.size || !click; click++) document.querySelector("[data-do=expand]").click();
  const cards = [...view.cards.values()].map(box);
  const size = (low, high) => Math.max(...cards.map((card) => card[high])) - Math.min(...cards.map((card) => card[low]));
  const spots = [...view.places.values()].sort((a, b) => a.x - b.x);
  const apart = spots.every((one, at) => { for (let next = at + 1; next < spots.length; next++) {
    if (spots[next].x - one.x >= CARD.width) return true;
    if (Math.abs(spots[next].y - one.y) < CARD.height) return false; } return true; });
  answer = { first, drawn: cards.length, sight: NODES.every((node) => within(node.id)), apart, map: map.hidden,
    wide: size("left", "right") / canvas.clientWidth, high: size("top", "bottom") / canvas.clientHeight };
"""


@needs_chromium
def test_two_thousand_versions_use_the_canvas(big_record: Callable[[int], RunRecord], tmp_path: Path) -> None:
    found = asked(write_html(big_record(2000), tmp_path / "tree.html"), LOOK + WHOLE)
    assert found["first"]["root"] and found["first"]["text"] > 0.6 and not found["first"]["map"]
    assert found["drawn"] == 2000 and found["sight"] and found["apart"] and found["map"]
    assert found["wide"] > 0.8 and found["high"] > 0.7


COMPARE = """
  const lines = (kind) => [...panel.querySelectorAll(`.diff .row.${kind} code`)].map((code) => code.textContent);
  const field = () => panel.querySelector(".versus input");
  const parent = panel.querySelector(".versus span").textContent;
  field().value = 2; field().dispatchEvent(new Event("change"));
  const marked = [...view.cards].filter(([, card]) => card.matches(".compared")).map(([id]) => id);
  const other = { out: lines("out").length, in: lines("in").length, marked };
  select(0);
  answer = { parent, other, root: panel.querySelector(".versus span").textContent, back: lines("in") };
"""


@needs_chromium
def test_any_two_versions_can_be_compared(record: RunRecord, tmp_path: Path) -> None:
    found = asked(write_html(record, tmp_path / "tree.html"), COMPARE)
    assert found["parent"] == "What changes from #4 to #7" and found["root"] == "What changes from #2 to #0"
    assert found["other"]["marked"] == [2] and found["other"]["out"] > 5 and found["other"]["in"] > 5
    assert '        y = torch.nn.functional.gelu(y, approximate="tanh")' in found["back"]
