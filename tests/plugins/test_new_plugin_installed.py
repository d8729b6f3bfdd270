"""A project of `hami new-plugin`: pip builds it, hami finds it after installation, and its own tests pass."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from temporary_environment import TemporaryEnvironment, run


@pytest.mark.parametrize("kind", ["python", "cpp"])
def test_a_new_project_can_be_built_installed_and_found(
    environment: TemporaryEnvironment, tmp_path: Path, kind: str
) -> None:
    if kind == "cpp" and not shutil.which("c++"):
        pytest.skip("c++ is not installed (Debian, Ubuntu: apt install g++)")
    environment.pip("install", "--no-index", "hami-tools")
    done = environment.hami("new-plugin", "acme-fresh", f"--{kind}")
    assert (done.returncode, done.stderr) == (0, "")
    project = tmp_path / "acme-fresh"
    before = environment.hami("run", "AcmeFresh(step=2)", "--data", "40")
    assert before.returncode == 1
    assert before.stderr.startswith('error: backend "AcmeFresh" not found')

    environment.pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path / "built"), str(project))
    (wheel,) = (tmp_path / "built").iterdir()
    if kind == "python":
        assert wheel.name == "acme_fresh-0.1.0-py3-none-any.whl"
    else:
        assert wheel.name.startswith("acme_fresh-0.1.0-py3-none-linux_")
    environment.pip("install", "--no-index", f"{wheel}[test]")

    assert environment.hami("run", "AcmeFresh(step=2)", "--data", "40").stdout == "42\n"
    done = environment.hami("plugins", "--load", "--json")
    (record,) = [each for each in json.loads(done.stdout) if each["distribution"] == "acme-fresh"]
    assert (done.returncode, record["plugin"], record["state"], record["error"]) == (0, "fresh", "ok", None)
    assert (record["abi"], record["backends"]) == ("1.0" if kind == "cpp" else None, ["AcmeFresh"])

    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project / "tests")]
    done = run(command, project, {})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.parametrize(("kind", "passed"), [("pipeline", "2 passed"), ("cuda", "passed")])
def test_a_new_project_with_tensors_passes_its_tests(
    environment: TemporaryEnvironment, tmp_path: Path, kind: str, passed: str
) -> None:
    if find_spec("numpy") is None:
        pytest.skip("numpy is not installed, which the tests of the project need")
    if kind == "cuda" and not shutil.which("c++"):
        pytest.skip("c++ is not installed (Debian, Ubuntu: apt install g++)")
    environment.pip("install", "--no-index", "hami-tools")
    assert environment.hami("new-plugin", "acme-fresh", f"--{kind}").returncode == 0
    environment.pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path / "built"), str(tmp_path / "acme-fresh"))
    (wheel,) = (tmp_path / "built").iterdir()
    environment.pip("install", "--no-index", f"{wheel}[test]")

    tests = str(tmp_path / "acme-fresh" / "tests")
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = run(command, tmp_path, {})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert passed in done.stdout
