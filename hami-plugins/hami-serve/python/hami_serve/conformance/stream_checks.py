"""Checks of the generate extension: answers as JSON, and in parts as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from hami_serve.conformance.client import Answer
from hami_serve.conformance.context import Context, Failed, Skipped, check, expect, succeeded, tensors

ABSENT = "no-such-model-5d1f"


def _path(model: str, kind: str) -> str:
    return f"/v2/models/{quote(model, safe='')}/{kind}"


def _body(inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return tensors as the extension has them: values without shapes."""
    return {each["name"]: each["data"][0] if len(each["data"]) == 1 else each["data"] for each in inputs}


def _generate(context: Context, kind: str, body: Any = None) -> Answer:
    """Send a request with zeros for the inputs of the model, unless there is a body."""
    answer = context.client.send("POST", _path(context.model, kind), _body(context.tensors()) if body is None else body)
    if answer.status in (404, 405):
        raise Skipped("the server does not have the extension generate")
    return answer


def _events(answer: Answer) -> list[dict[str, Any]]:
    """Return the data of the events of an answer."""
    expect(answer.status == 200, f"expected status 200, got {answer.status}: {answer.body[:200]!r}")
    kind = answer.headers.get("content-type", "")
    expect(kind.partition(";")[0] == "text/event-stream", f"the Content-Type is {kind!r}, expected text/event-stream")
    *parts, rest = answer.body.replace(b"\r\n", b"\n").split(b"\n\n")
    expect(not rest, f"the last event does not end with an empty line: {rest[:200]!r}")
    found = []
    for part in parts:
        expect(part.startswith(b"data:"), f'an event does not begin with "data:": {part[:200]!r}')
        try:
            found.append(json.loads(part[5:]))
        except ValueError:
            raise Failed(f"the data of an event are not JSON: {part[:200]!r}") from None
        expect(isinstance(found[-1], dict) and "error" not in found[-1], f"an event is {found[-1]!r}")
    return found


@check("generate", "generate answers a request of JSON values with the outputs by their names")
def _answers(context: Context) -> None:
    answer = succeeded(_generate(context, "generate"))
    expect(isinstance(answer, dict), f"the answer is {answer!r}")
    expect(answer.get("model_name") == context.model, f"model_name is {answer.get('model_name')!r}")
    names = [each["name"] for each in succeeded(context.client.get(f"/v2/models/{context.model}"))["outputs"]]
    missing = [name for name in names if name not in answer]
    expect(not missing, f"the answer lacks the outputs {missing}")


@check("generate", "generate_stream answers the same as a server-sent event")
def _one_event(context: Context) -> None:
    wanted = succeeded(_generate(context, "generate"))
    found = _events(_generate(context, "generate_stream"))
    expect(found[-1:] == [wanted], f"generate answers {wanted}, and the last event is {found[-1:]}")


def _rejects(what: str, kind: str, body: Any) -> None:
    @check("generate", f"{kind} of {what}: a client error with a message")
    def rejects(context: Context) -> None:
        context.rejects(_generate(context, kind, body), what)


for _kind in ("generate", "generate_stream"):
    _rejects("malformed JSON", _kind, b'{"a": ')
    _rejects("an empty body", _kind, b"")


@check("generate", "a stream of a model that does not exist is a client error with a message")
def _absent(context: Context) -> None:
    _generate(context, "generate")  # is skipped if there is no such extension
    context.rejects(context.client.send("POST", _path(ABSENT, "generate_stream"), {"x": 1}), "generate_stream")


def _stream_body(context: Context) -> dict[str, Any]:
    if context.stream is None:
        raise Skipped("no model for it: give one with --stream")
    metadata = succeeded(context.client.get(f"/v2/models/{context.stream}"))
    return _body(tensors(list(metadata.get("inputs", ())), size=3))


@check("generate", "a model that answers in parts has several events with the same outputs")
def _several_events(context: Context) -> None:
    body = _stream_body(context)
    found = _events(context.client.send("POST", _path(context.stream or "", "generate_stream"), body))
    expect(len(found) > 1, f"there are {len(found)} events")
    names = {frozenset(each) for each in found}
    expect(len(names) == 1, f"the events have different keys: {sorted(map(sorted, names))}")


@check("generate", "a client that leaves its stream leaves the server alive")
def _leaves(context: Context) -> None:
    body = json.dumps(_stream_body(context)).encode()
    path = context.client.prefix + _path(context.stream or "", "generate_stream")
    head = f"POST {path} HTTP/1.1\r\nHost: {context.client.host}\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(8):
        with context.client.socket() as client:
            client.sendall(head.encode() + body)
            client.recv(16)
    expect(context.client.get("/v2/health/live").status == 200, "the server is not live any more")
