"""Requests that a browser sends for a page of another site are rejected, unless the server has a token."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from contextlib import closing

import pytest
from test_command import serving

import hami_serve

INFER = "/v2/models/echo/infer"
UNLOAD = "/v2/repository/models/echo/unload"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "echo.toml").write_text('[echo]\nbackend = "Identity"\n')
    with serving(folder, ".", "--allow-control", "--allow-host", "Models.Example") as (process, port):
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def ask(port: int, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, dict]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(
            method, path, body, {key: value.replace("PORT", str(port)) for key, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:PORT"},
        {"Host": "[::1]:PORT"},
        {"Host": "127.0.0.1.:PORT"},
        {"Host": "models.example"},
        {"Host": "MODELS.EXAMPLE:443", "Origin": "https://models.example"},
        {"Origin": "http://127.0.0.1:PORT"},
        {"Origin": "http://127.0.0.1:PORT", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://behind.a.proxy", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://models.example:8443", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_requests_of_programs_and_of_own_pages_are_answered(port, headers):
    assert ask(port, "POST", INFER, headers, BODY)[0] == 200


@pytest.mark.parametrize("path", [INFER, UNLOAD])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": "https://evil.example"}, 'a page of another site, "https://evil.example"'),
        ({"Origin": "null"}, 'a page of another site, "null"'),
        ({"Origin": "http://127.0.0.1:1"}, 'a page of another site, "http://127.0.0.1:1"'),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, "a page of another site"),
        ({"Sec-Fetch-Site": "same-site"}, 'a page of another site, "same-site"'),
        ({"Sec-Fetch-Site": "cross-site"}, 'a page of another site, "cross-site"'),
        ({"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"}, 'is for the host "evil.example"'),
        ({"Host": "localhost.evil.example"}, 'is for the host "localhost.evil.example"'),
    ],
)
def test_requests_of_pages_of_other_sites_are_rejected(port, path, headers, reason):
    """And change nothing: the model is still ready."""
    status, answer = ask(port, "POST", path, headers, BODY)
    assert (status, reason in answer["error"], "--allow-host NAME" in answer["error"]) == (403, True, True), answer
    assert ask(port, "GET", "/v2/models/echo/ready", {})[0] == 200


def test_a_name_of_another_site_that_leads_here_reads_nothing(port):
    assert ask(port, "GET", "/v2/models/echo", {"Host": "evil.example"})[0] == 403
    assert ask(port, "GET", "/v2/health/live", {"Host": "evil.example"})[0] == 200


def test_a_link_of_another_site_may_lead_here(port):
    assert ask(port, "GET", "/v2/models/echo", {"Sec-Fetch-Site": "cross-site"})[0] == 200


def test_a_server_with_a_token_needs_no_check(tmp_path):
    (tmp_path / "token").write_text("t0k3n\n")
    headers = {"Host": "other.example", "Origin": "https://evil.example", "Authorization": "Bearer t0k3n"}
    with serving(tmp_path, "Identity", "--token-file", "token") as (process, port):
        assert ask(port, "POST", "/v2/models/Identity/infer", headers, BODY)[0] == 200
        del headers["Authorization"]
        assert ask(port, "POST", "/v2/models/Identity/infer", headers, BODY)[0] == 401
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/metrics", headers={"Authorization": "Bearer t0k3n"})
            assert b'hami_serve_answers_total{code="401",protocol="HTTP"} 1.0' in connection.getresponse().read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_application_rejects_pages_of_other_sites_too():
    """Under a server of another package."""
    app = hami_serve.app({"echo": "Identity"}, allow_control=True, allow_hosts=["good.example"])

    def status_for(origin: str) -> int:
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"models"), (b"origin", origin.encode())]
        scope = {"type": "http", "method": "POST", "path": UNLOAD, "headers": headers, "query_string": b""}
        asyncio.run(app(scope, receive, send))
        return sent[0]["status"]

    try:
        assert status_for("https://evil.example") == 403
        assert status_for("https://good.example") == 200
    finally:
        app.state.serving.stop()
