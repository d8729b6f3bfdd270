"""A wheel of another author may contain anything: each check has a finding, and no content ends the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import METADATA, PLATFORM, Make

from hami_build import audit, catalog, grades

Find = Callable[..., grades.Finding]
SOURCES = {
    "syntax": b"def (",
    "NUL": b"a = 1\0",
    "not UTF-8": b'a = "\xff"',
    "not an encoding": b"# coding: rot13\na = 1",
    "parentheses": b"x = " + b"(" * 5000 + b")" * 5000,
    "unary": b"x = " + b"-" * 200_000 + b"1",
    "sum": b"x = " + b"1 + " * 200_000 + b"1",
}
OBJECTS = {
    "empty": b"",
    "text": b"#!/bin/sh\n",
    "head": b"\x7fELFgarbage",
    "without symbols": b"\x7fELF\x01\x01\x01" + bytes(200),
}
BILLS = {
    "list": b"[1]",
    "deep": b"[" * 100_000,
    "not UTF-8": b"\xff",
    "without a subject": b'{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}',
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_that_python_cannot_read_is_a_finding(make: Make, finding: Find, source: bytes) -> None:
    wheel = make(files={"acme_inc/plugin.py": source})
    found = finding(wheel, "entry points")
    assert (found.state, found.detail.partition(":")[0]) == ("failed", "cannot be checked")
    results = list(audit.attempt("entry points", lambda: [audit.entry_points(audit.wheel_file.read(wheel))]))
    assert [(name, passed) for name, passed, _ in results] == [("entry points", False)]


@pytest.mark.parametrize("content", OBJECTS.values(), ids=OBJECTS)
def test_a_file_that_is_not_a_shared_object_is_a_finding(make: Make, content: bytes) -> None:
    wheel = make(PLATFORM, {"acme_inc/acme.so": content})
    found = list(audit.attempt("binaries", lambda: audit.binaries(wheel, "")))
    assert [(name, detail.partition(":")[0]) for name, passed, detail in found if not passed][-1:] == [
        ("binaries", "cannot be checked")
    ]


@pytest.mark.parametrize("text", BILLS.values(), ids=BILLS)
def test_a_bill_of_materials_of_another_form_is_a_finding(make: Make, finding: Find, text: bytes) -> None:
    pytest.importorskip("cyclonedx")
    found = finding(make(info={"sboms/acme-inc.cdx.json": text}), "bill of materials")
    assert found.state == "failed"


def test_a_requirement_that_cannot_be_read_is_a_finding(make: Make, finding: Find) -> None:
    found = finding(make(info={"METADATA": METADATA.replace("hami-core>=2.0", "hami-core >=>= 2")}), "hami-core")
    assert found.state == "failed"
    assert found.detail.startswith("cannot be checked: InvalidRequirement: ")
    assert "\n" not in found.detail


ENDINGS = {
    "exits": ("import os\nos._exit(0)\n", "its code ended the process, with status 0; correct the code"),
    "fails with bytes": (
        "import os\nos.write(2, b'\\xff\\n')\nraise SystemExit(3)\n",
        "\ufffd; install what",
    ),
}


@pytest.mark.parametrize(("code", "message"), ENDINGS.values(), ids=ENDINGS)
def test_code_that_ends_its_process_is_a_finding(make: Make, finding: Find, code: str, message: str) -> None:
    wheel = make(files={"acme_inc/plugin.py": code})
    found = finding(wheel, "discovery")
    assert found.state == "failed"
    assert found.detail.startswith(message)
    (plugin,) = catalog.collect([wheel])["plugins"]
    assert plugin["backends"] == {"AcmeInc": {}}


NOISES = {
    "when it is imported": "print('{}')\n",
    "at its end": "import atexit, os\natexit.register(os.write, 1, b'[1]\\n')\n",
    "bytes": "import os\nos.write(1, b'\\xff\\n')\n",
}


@pytest.mark.parametrize("code", NOISES.values(), ids=NOISES)
def test_code_may_print(make: Make, finding: Find, code: str) -> None:
    assert finding(make(files={"acme_inc/__init__.py": code}), "discovery").state == "passed"


def test_a_process_that_the_code_starts_is_not_waited_for(make: Make, finding: Find, tmp_path: Path) -> None:
    """It inherits the output of its parent and has it open for as long as it runs."""
    pid = tmp_path / "pid"
    code = "import pathlib, subprocess\n"
    code += f"started = subprocess.Popen(['sleep', '3600'])\npathlib.Path({str(pid)!r}).write_text(str(started.pid))\n"
    found = finding(make(files={"acme_inc/__init__.py": code}), "discovery")
    number = int(pid.read_text())
    try:
        assert found.state == "passed"
        assert Path("/proc", str(number), "comm").read_text() == "sleep\n"
    finally:
        os.kill(number, signal.SIGKILL)
