"""The pages of mtmc watch: for this machine alone, nothing but what they are, and growing with their run."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtmc.cli import main
from mtmc.errors import ConfigError
from mtmc.watch import LiveFolder, Watcher
from tests.browser import browse, needs_chromium
from tests.watched import Served, run

Serve = Callable[[Path], Served]
QUERY = "versions=0&lines=0&actions=0&evaluations=0&statistics=0"


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_run_has_a_page_that_asks_for_more(serve: Serve, tmp_path: Path) -> None:
    run(tmp_path / "run", 6)
    served = serve(tmp_path / "run")
    status, headers, page = served.get("/")
    assert status == 200 and "connect-src &#x27;self&#x27;" in page and headers["Cache-Control"] == "no-store"
    data = data_of(page)
    status, _, text = served.get(f"{data['address']}?{QUERY}")
    assert status == 200 and json.loads(text)["nodes"] == data["nodes"] and data["back"] is None
    assert served.get("/", "HEAD")[2] == "" and served.get("/overview")[0] == 404


def test_a_sweep_has_a_page_and_one_for_each_run(serve: Serve, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name, 5)
    evil = '</script><script>document.title="PWNED"</script>'
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "error.txt").write_text(evil)
    served = serve(tmp_path)
    page = served.get("/")[2]
    assert evil not in page and page.count("<script") == 2
    assert [row["name"] for row in data_of(page)["runs"]] == ["a", "b", "c"]
    assert json.loads(served.get("/overview")[2])["runs"][2]["finished"] == evil
    assert data_of(served.get("/runs/1/")[2])["back"] == "/" and served.get("/runs/2/")[0] == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("127.0.0.1", "localhost", "LOCALHOST:1234", "[::1]:8765")),
        *((name, 403) for name in ("", "evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.")),
        *((name, 403) for name in ("localhost:80:80", "localhost:x", "0.0.0.0", "user@localhost")),
    ],
)
def test_only_who_names_this_machine_is_answered(serve: Serve, tmp_path: Path, host: str, status: int) -> None:
    run(tmp_path / "run", 3)
    served = serve(tmp_path / "run")
    for path in ("/", f"/runs/0/changes?{QUERY}"):
        found, headers, text = served.get(path, Host=host)
        assert found == status and ("class ModelNew" in text) == (status == 200)
        assert headers["X-Content-Type-Options"] == "nosniff" and "Access-Control-Allow-Origin" not in headers


def test_no_file_is_served(serve: Serve, tmp_path: Path) -> None:
    run(tmp_path / "run", 3)
    (tmp_path / "secret").write_text("secret")
    served = serve(tmp_path / "run")
    paths = (
        "/run.sqlite",
        "/../secret",
        "/%2e%2e/secret",
        "/runs/0/../../secret",
        "//etc/passwd",
        "//[x",
        "/runs/0/run.sqlite",
    )
    for path in (*paths, f"/{tmp_path}/secret", "/runs/1/", "/runs/-1/", "/runs/0", "/runs/0000000/"):
        assert served.get(path)[0] == 404, path
    for query in (
        "",
        "?versions=0",
        "?" + QUERY.replace("lines=0", "lines=x"),
        "?" + QUERY.replace("lines=0", "lines=1e9"),
    ):
        assert served.get(f"/runs/0/changes{query}")[0] == 400, query
    assert served.get("/runs/0/changes?" + QUERY.replace("versions=0", "versions=-5"))[0] == 200
    assert served.get("/", "POST")[0] == 501
    assert served.server.server_address[0] == "127.0.0.1"


def test_a_run_that_is_gone_is_said(serve: Serve, tmp_path: Path) -> None:
    run(tmp_path / "run", 3)
    served = serve(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    status, _, text = served.get(f"/runs/0/changes?{QUERY}")
    assert status == 503 and "is gone" in json.loads(text)["error"]


def test_ports(tmp_path: Path) -> None:
    run(tmp_path / "run", 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            Watcher(LiveFolder(tmp_path / "run"), port)
    for port in (-1, 65536):
        with pytest.raises(ConfigError, match="from 0"):
            Watcher(LiveFolder(tmp_path / "run"), port)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "s" / "a", 4)
    assert main(["watch", str(tmp_path / "s"), "--once"]) == 0
    assert capsys.readouterr().out.startswith("a: ended, 4 evaluations are spent: 4/4 evaluations, ")
    assert main(["watch", str(tmp_path / "s" / "a"), "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["state"] == "ended"
    assert main(["watch", str(tmp_path), "--port", "x"]) == 2 and main(["watch", str(tmp_path / "no")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2

    def stopped(server: Watcher) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watcher, "serve_forever", stopped)
    assert main(["watch", str(tmp_path / "s"), "--port", "0", "--no-browser"]) == 0
    assert re.search(r"at http://127\.0\.0\.1:\d+/ ", capsys.readouterr().out)


@needs_chromium
def test_a_page_grows_with_its_run(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run", 5)
    served = serve(tmp_path / "run")
    live = served.folder.runs[0]
    asked, changes = list[Any](), live.changes

    def growing(known: Any) -> Any:
        if len(asked) == 2:  # the page itself, a question, and now there is more
            run(tmp_path / "run", 20)
        asked.append(known)
        return changes(known)

    monkeypatch.setattr(live, "changes", growing)
    drawn = browse(served.address, 8000)
    result = served.folder.runs[0].progress()
    cards = re.findall(r'<div class="card ([^"]*)" id="n(\d+)"', drawn)
    assert len(cards) == result.versions > asked[1]["versions"] and len(asked) > 2
    best = changes(asked[0])["best"]
    assert [int(number) for classes, number in cards if "selected" in classes] == [best]  # nobody chose another
    assert "20 / 20 evaluations" in drawn and "ended: 20 evaluations are spent" in drawn and ">Cost<" in drawn


@needs_chromium
def test_a_browser_draws_the_runs_of_a_sweep(serve: Serve, tmp_path: Path) -> None:
    for name, strategy in (("a", "mcts"), ("b", "random"), ("c", "greedy")):
        run(tmp_path / name, 8, strategy=strategy)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "error.txt").write_text("<img src=x onerror=alert(1)>")
    drawn = browse(serve(tmp_path).address)
    assert drawn.count('<path class="series ') == 3 and drawn.count("<tr") == 5 and "<img" not in drawn
    assert re.findall(r'<a href="(/runs/\d+/)">', drawn) == ["/runs/0/", "/runs/1/", "/runs/2/"]
