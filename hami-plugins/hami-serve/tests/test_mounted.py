"""The application inside another application, which does not run the lifespan of what it mounts."""

from __future__ import annotations

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from server_process import ask, free_port, running

STARLETTE = """
from starlette.applications import Starlette
from starlette.routing import Mount

host = Starlette(routes=[Mount("/models", models)]LIFESPAN)
"""
FASTAPI = """
from fastapi import FastAPI

host = FastAPI(LIFESPAN)
host.mount("/models", models)
"""
PROGRAM = '''
import pathlib
import hami
import hami_serve


@hami.register
class Counted(hami.Backend):
    """Writes a line when it is loaded, and when it is closed."""

    broken: str = ""

    def init(self, options):
        print("loaded", flush=True)
        if self.broken and pathlib.Path(self.broken).exists():
            raise RuntimeError("the file of the model is damaged")

    def forward(self, batch):
        for item in batch:
            item["result"] = "done"

    def close(self):
        print("closed", flush=True)


models = hami_serve.app({"a": {"backend": "Counted", "broken": "broken"}})
'''
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})


@contextmanager
def hosting(folder: Path, host: str, lifespan: str = ""):
    """Run an application with uvicorn; yield the process and its port, as soon as it answers."""
    (folder / "program.py").write_text(PROGRAM + host.replace("LIFESPAN", lifespan))
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "program:host", "--port", str(port), "--log-level", "warning"]
    with running(command, folder, port, "/models/v2/health/live") as process:
        yield process, port


def infer(port: int) -> object:
    status, answer = ask(port, "/models/v2/models/a/infer", BODY)
    return answer["outputs"][0]["data"] if status == 200 else (status, answer["error"])


@pytest.mark.parametrize(("package", "host"), [("starlette", STARLETTE), ("fastapi", FASTAPI)])
def test_the_first_requests_load_the_models_once(tmp_path, package, host):
    pytest.importorskip(package)
    with hosting(tmp_path, host) as (process, port), ThreadPoolExecutor(8) as clients:
        assert list(clients.map(infer, [port] * 8)) == [["done"]] * 8
        assert ask(port, "/models/v2/health/ready") == (200, {"ready": True})
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.stdout.read().splitlines() == ["loaded", "closed"]
        assert "Traceback" not in process.stderr.read().partition("KeyboardInterrupt")[0]


def test_a_readiness_probe_loads_the_models(tmp_path):
    with hosting(tmp_path, STARLETTE) as (process, port):
        assert ask(port, "/models/v2/health/ready")[0] in (200, 503)
        assert process.stdout.readline() == "loaded\n"
        while ask(port, "/models/v2/health/ready")[0] != 200:
            threading.Event().wait(0.02)


def test_a_load_that_fails_is_tried_again_by_the_next_request(tmp_path):
    (tmp_path / "broken").touch()
    with hosting(tmp_path, STARLETTE) as (_, port):
        status, error = infer(port)
        assert (status, "the models failed to load: RuntimeError; the log of the server has" in error) == (503, True)
        (tmp_path / "broken").unlink()
        assert infer(port) == ["done"]


@pytest.mark.parametrize(("package", "host"), [("starlette", STARLETTE), ("fastapi", FASTAPI)])
def test_the_host_starts_and_stops_the_models_with_its_lifespan(tmp_path, package, host):
    pytest.importorskip(package)
    separator = ", " if host is STARLETTE else ""
    with hosting(tmp_path, host, f"{separator}lifespan=models.router.lifespan_context") as (process, port):
        assert process.stdout.readline() == "loaded\n"
        assert infer(port) == ["done"]
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.stdout.read() == "closed\n"
