"""Runs all checks against a server; the command `hami serve-check`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import hami

from hami_serve.conformance import checks as _checks  # noqa: F401 (registers the checks)
from hami_serve.conformance import stream_checks as _stream_checks  # noqa: F401 (registers the checks)
from hami_serve.conformance import tensor_checks as _tensor_checks  # noqa: F401 (registers the checks)
from hami_serve.conformance.client import Client
from hami_serve.conformance.context import CHECKS, Check, Context, Failed, Skipped
from hami_serve.conformance.report import Result, as_json, as_junit, as_table


def serve_check(arguments: argparse.Namespace) -> int:
    """Run the checks, write the reports, and return 1 if a check failed."""
    context, server = prepare(arguments.url, arguments.model, arguments.identity, arguments.stream)
    results = run_checks(context)
    if arguments.junit:
        Path(arguments.junit).write_text(as_junit(results, server), "utf-8")
    print(as_json(results, server) if arguments.json else as_table(results, server))
    return 1 if any(result.outcome == "failed" for result in results) else 0


def prepare(url: str, model: str, identity: str | None = None, stream: str | None = None) -> tuple[Context, str]:
    """Ask the server about itself and the model.

    Raises:
        ConfigError: The server cannot be reached, or does not have the model.
    """
    client = Client(url)
    try:
        metadata = client.get("/v2")
        described = client.get(f"/v2/models/{model}")
    except OSError as error:
        raise hami.ConfigError(f"no server answers at {url}: {error}") from error
    if described.status != 200:
        raise hami.ConfigError(f'the server has no model "{model}": status {described.status} {described.body[:200]!r}')
    try:
        answer = metadata.json if metadata.status == 200 else {}
        inputs = list(described.json.get("inputs") or [])
    except (ValueError, AttributeError) as error:
        raise hami.ConfigError(f"the metadata of the server are not those of the protocol: {error}") from error
    context = Context(client, model, identity, stream, tuple(answer.get("extensions") or ()), inputs)
    return context, f"{answer.get('name', 'unknown server')} {answer.get('version', '')} at {url}".strip()


def run_checks(context: Context) -> list[Result]:
    return [run_check(each, context) for each in CHECKS]


def run_check(check: Check, context: Context) -> Result:
    started = time.perf_counter()
    try:
        check.function(context)
        outcome, message = "passed", ""
    except Skipped as reason:
        outcome, message = "skipped", str(reason)
    except Failed as reason:
        outcome, message = "failed", str(reason)
    except Exception as error:  # such as a connection that the server closed, or an answer of another form
        outcome, message = "failed", f"{type(error).__name__}: {error}"
    return Result(check.group, check.claim, outcome, message, round(time.perf_counter() - started, 4))
