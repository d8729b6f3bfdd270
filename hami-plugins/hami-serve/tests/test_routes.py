"""Routes of plugins: their requests run on the models of the server, and their failures are those of any request."""

from __future__ import annotations

import re
import textwrap
import threading
from typing import Any

import hami
import pytest

from hami_serve import http_app, routes

RAISED = 'ZeroDivisionError: in the backend\nin backend TestRaises, node "default"'


@pytest.fixture
def shouting(monkeypatch, start):
    """A server with the route of the documentation."""
    (code,) = re.findall(r"^    async def shout.*?^    ROUTES.*?$", routes.__doc__ or "", re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {**vars(routes)}
    exec(compile(textwrap.dedent(code), "example", "exec", dont_inherit=True), names)
    monkeypatch.setattr(http_app, "plugin_routes", lambda: names["ROUTES"])
    return start({"shout": "Identity", "raises": "TestRaises"}, max_body=1000)


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ({"text": "a"}, 200, {"answer": "a"}),
        ({"text": "a", "model": "raises"}, 500, {"message": RAISED}),
        ({"text": "a", "model": "other"}, 404, {"error": "this server has no model other; it has shout, raises"}),
        ({"text": "a", "model": []}, 400, {"error": "model must be a string, got []"}),
        (b"[]", 400, {"error": "the request is a JSON object, got []"}),
        ({"text": "a" * 1000}, 413, {"error": "the body has 1012 bytes; this server accepts 1000"}),
        ({}, 500, {"error": "KeyError: 'text'"}),
    ],
)
def test_a_route_answers(shouting, body, status, answer):
    assert shouting.post("/acme/shout", body) == (status, answer)


def test_a_request_of_a_route_passes_no_table_of_routes(shouting, monkeypatch):
    """The table is searched from its start and has the routes of plugins at its end, after about thirty others."""
    searched: list[str] = []

    async def called(app: Any, scope: Any, receive: Any, send: Any) -> None:
        searched.append(scope.get("path", scope["type"]))
        await original(app, scope, receive, send)

    original = http_app.Starlette.__call__
    monkeypatch.setattr(http_app.Starlette, "__call__", called)
    assert shouting.post("/acme/shout", {"text": "a"}) == (200, {"answer": "a"})
    assert shouting.post("/acme/other", {"text": "a"})[0] == 404
    assert searched == ["/acme/other"]


class NamesThread:
    """Its JSON is the name of the thread that makes it."""

    def __str__(self) -> str:
        return threading.current_thread().name


@pytest.mark.parametrize(("count", "on_loop"), [(10, True), (5000, False)])
def test_only_long_answers_are_written_on_another_thread(monkeypatch, start, count, on_loop):
    async def answer(_: routes.Exchange) -> routes.Answer:
        name = threading.current_thread().name
        return routes.Answer(200, {"loop": name, "written": NamesThread(), "rest": [0] * count})

    monkeypatch.setattr(http_app, "plugin_routes", lambda: [routes.Route("/acme/named", answer)])
    status, found = start({"shout": "Identity"}).post("/acme/named", {})
    assert (status, found["written"] == found["loop"]) == (200, on_loop)


class Entry:
    def __init__(self, owner: str, found: Any) -> None:
        self.dist = type("Distribution", (), {"name": owner})()
        self._found = found

    def load(self) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([Entry("hami-serve", ImportError("no acme"))], "the routes of hami-serve cannot be imported: no acme"),
        (
            [Entry("hami-serve", [routes.Route("/a", None)])] * 2,
            "hami-serve and another plugin have the route /a; uninstall one of them",
        ),
    ],
)
def test_routes_that_cannot_be_used(monkeypatch, entries, message):
    monkeypatch.setattr(routes, "entry_points", lambda group: entries)
    with pytest.raises(hami.PluginError, match=message):
        routes.plugin_routes()


def test_a_disabled_plugin_has_no_routes(monkeypatch):
    monkeypatch.setattr(routes, "entry_points", lambda group: [Entry("acme", ImportError("never imported"))])
    assert routes.plugin_routes() == []
