"""What finds code that data names finds it where it is planted."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from running import TIMEOUT

FOLDER = Path(__file__).parents[1] / "reliability"
ROOT = FOLDER.parents[1]


def run_with_watch(*command: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(FOLDER)}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


PLANTED = """
    def test_it_runs():
        source = "def planted(given):\\n    import ctypes, importlib, marshal, pickle\\n    {body}"
        found = {{}}
        exec(compile(source, "/any/python/hami_acme/file.py", "exec"), found)
        found["planted"]({given})
"""


@pytest.mark.parametrize(
    ("event", "body", "given"),
    [
        ("exec", "importlib.import_module(given)", "'this'"),
        ("import", "__import__(given)", "'this'"),
        ("exec", "eval(given)", "'1 + 1'"),
        ("compile", "compile(given, 'name', 'exec')", "'1 + 1'"),
        ("pickle.find_class", "pickle.loads(given)", "b'cos\\nsep\\n.'"),
        ("marshal.loads", "marshal.loads(given)", "b'N'"),
        ("ctypes.dlopen", "ctypes.CDLL(given)", "None"),
    ],
)
def test_the_watch_finds_code_by_a_name_that_is_not_in_the_source(
    event: str, body: str, given: str, tmp_path: Path
) -> None:
    test = tmp_path / "test_planted.py"
    test.write_text(textwrap.dedent(PLANTED.format(body=body, given=given)))
    done = run_with_watch("-m", "pytest", "-q", "-p", "code_watch", "-p", "no:cacheprovider", test)
    assert done.returncode == 1, done.stdout
    assert f"CODE FROM DATA: {event} in hami_acme/file.py:planted: " in done.stdout


def test_the_watch_lets_statements_pass_and_finds_nothing_in_real_tests() -> None:
    files = [Path(__file__).with_name(f"test_{name}.py") for name in ("config_extends", "catalog", "plugins")]
    done = run_with_watch("-m", "pytest", "-q", "-p", "code_watch", "-p", "no:cacheprovider", *files)
    assert (done.returncode, "CODE FROM DATA" in done.stdout) == (0, False), done.stdout


BACKEND = """
    import ctypes, importlib, pickle, random
    import code_from_data, hami

    @hami.register
    class Planted(hami.Backend):
        given: str

        def init(self, options):
            {body}

        def forward(self, batch):
            raise NotImplementedError

    planted = code_from_data.planted_code()
    for what, read in code_from_data.parameters(planted, random.Random()):
        if what.startswith("Planted:"):
            code_from_data.read_one(planted, what, read)
"""


@pytest.mark.parametrize(
    "body",
    [
        "importlib.import_module(self.given)",
        "ctypes.CDLL(self.given)",
        "eval(self.given)",
        "pickle.loads(open(self.given, 'rb').read())",
    ],
)
def test_a_backend_that_runs_what_its_parameter_names_breaks_the_promise(body: str) -> None:
    done = run_with_watch("-c", textwrap.dedent(BACKEND.format(body=body)))
    assert (done.returncode, done.stderr[:24]) == (1, "broken: Planted: given ="), done.stderr


def test_each_function_that_may_run_code_by_a_name_exists() -> None:
    packages = [ROOT / "hami-core" / "python", *ROOT.glob("hami-plugins/*/python")]
    for site in runpy.run_path(str(FOLDER / "code_watch.py"))["ALLOWED"]:
        path, _, name = site.partition(":")
        (file,) = [folder / path for folder in packages if (folder / path).is_file()]
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}, site
