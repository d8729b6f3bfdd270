"""schemathesis sends requests that it makes from the OpenAPI document, valid and invalid, and checks every answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hami_serve.openapi import document

PROGRAM = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
if PROGRAM is None:
    pytest.skip("needs schemathesis: ci/test serving", allow_module_level=True)
# That every valid request is accepted is not checked: no schema says that a tensor has as many elements as its shape.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
    *("negative_data_rejection", "unsupported_method", "allow_header_conformance"),
)
EXAMPLES = 60  # for each operation


def test_no_request_is_a_server_error_and_answers_are_as_the_document_says(server, tmp_path):
    described = document()
    names = {"name": ["any", "simple", "absent"], "version": ["1", "7"]}
    of_models = (item for path, item in described["paths"].items() if "/models/" in path)
    for operation in (each for item in of_models for each in item.values()):
        for parameter in operation["parameters"]:
            if parameter["name"] in names:
                parameter["schema"]["enum"] = names[parameter["name"]]
    (tmp_path / "openapi.json").write_text(json.dumps(described))
    options = ["--url", f"http://{server.url}", "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing"]
    options += ["--max-examples", str(EXAMPLES), "--generation-deterministic", "--suppress-health-check", "all"]
    command = [PROGRAM, "run", "openapi.json", *options, "--continue-on-failure", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (generated,) = re.findall(r"(\d+) generated", done.stdout)
    assert int(generated) >= 1000
    print(f"{generated} requests")
    status, _ = server.get("/v2/health/ready")
    assert status == 200
