"""`hami new-plugin` writes a project whose tests pass unchanged."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import hami
import pytest
from conftest import Run
from fake_site import tomllib, write_metadata

from hami_tools.new_plugin import kinds, write_project


def files_of(folder: Path) -> set[str]:
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in files if "__pycache__" not in path.parts}


EXAMPLES = Path(__file__).parents[3] / "examples"
COMMON = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "ci.sh", ".gitignore", ".github/workflows/wheels.yml"),
    "python/acme_add/__init__.py",
}
BACKEND = COMMON | {"tests/test_backend.py", "python/acme_add/quality.toml", "python/acme_add/plugin.py"}
PYTHON = BACKEND | {"python/acme_add/backend.py"}
CPP = BACKEND | {"CMakeLists.txt", "src/backend.cpp"}
FILES = {
    "python": PYTHON,
    "cpp": CPP,
    "cuda": CPP
    | {f"src/{name}" for name in ("compile_ptx.py", "cuda_driver.hpp", "kernels.cu")}
    | {"python/acme_add/samples.py"},
    "torch": PYTHON | {"python/acme_add/model.py"},
    "pipeline": COMMON | {"tests/test_pipeline.py", "python/acme_add/pipeline.toml"},
}


@pytest.mark.parametrize("kind", FILES)
def test_it_writes_a_complete_project(hami_command: Run, tmp_path: Path, kind: str) -> None:
    backend = [] if kind == "pipeline" else ["--backend", "AcmeAdds"]
    done = hami_command("new-plugin", "acme-add", f"--{kind}", *backend, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "acme-add"
    printed = {str(Path(path).relative_to("acme-add")) for path in json.loads(done.stdout)}
    assert files_of(folder) == FILES[kind] == printed
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "acme-add"
    assert project["dependencies"][0] == f"hami-core>={hami.__version__}"
    assert project["entry-points"] == (
        {"hami.pipelines": {"acme_add": "acme_add:pipeline.toml"}}
        if kind == "pipeline"
        else {"hami.backends": {"AcmeAdds": "acme_add.plugin"}, "hami": {"add": "acme_add.plugin"}}
    )
    text = "".join((folder / name).read_text("utf-8") for name in FILES[kind])
    assert re.findall("@[A-Z_]+@", text) == []


def test_every_kind_is_an_option(hami_command: Run) -> None:
    assert set(kinds()) == set(FILES)
    help_text = hami_command("new-plugin", "--help").stdout
    assert [kind for kind in FILES if f"--{kind} " not in help_text] == []


@pytest.mark.parametrize(("kind", "passed"), [("python", "4 passed"), ("pipeline", "2 passed")])
def test_the_tests_of_a_project_pass(tmp_path: Path, kind: str, passed: str) -> None:
    if kind == "pipeline":
        pytest.importorskip("numpy")
    project, site = tmp_path / "acme-fresh", tmp_path / "site"
    write_project("acme-fresh", kind, project)
    shutil.copytree(project / "python", site)
    data = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    write_metadata(site, data["name"], data["version"], data["entry-points"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    path = {"PYTHONPATH": ":".join([str(site), *sys.path])}
    done = subprocess.run(command, cwd=project, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert passed in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["Acme_Add"],
            '"Acme_Add" is not a valid plugin name: use lower-case letters, digits and single -, such as acme-resize',
        ),
        (
            ["acme", "--backend=1"],
            "'1' is not a valid backend name: use letters, digits and _, not starting with a digit",
        ),
        (["identity"], '"Identity" is the name of a backend of the core; choose another name with --backend'),
        (["hami"], '"hami" is the name of a package of HAMi; choose another name, such as acme-resize'),
        (["hami-core"], '"hami-core" is the name of a package of HAMi; choose another name, such as acme-resize'),
        (["hami-image"], '"hami-image" is the name of a package of HAMi; choose another name, such as acme-resize'),
        (["json"], '"json" is the name of a module of Python; choose another name, such as acme-json'),
        (["test"], '"test" is the name of a module of Python; choose another name, such as acme-test'),
        (["class"], '"class" is a keyword of Python; choose another name, such as acme-class'),
        (["none"], '"None" is a keyword of Python; choose another name with --backend'),
        (["acme", "--backend=class"], '"class" is a keyword of Python; choose another name with --backend'),
        (["acme", "--cpp", "--backend=int"], '"int" is a keyword of C++; choose another name with --backend'),
        (["acme", "--cuda", "--backend=int"], '"int" is a keyword of C++; choose another name with --backend'),
        (["acme", "--pipeline", "--backend=Sum"], "a plugin of pipelines has no backends; leave out --backend"),
        (["acme-add", "--folder", "there"], "the folder there exists already; choose another one with --folder"),
    ],
)
def test_an_invalid_name_or_folder_is_an_error(
    hami_command: Run, tmp_path: Path, arguments: list[str], text: str
) -> None:
    (tmp_path / "there").mkdir()
    done = hami_command("new-plugin", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {text}\n")
    assert files_of(tmp_path) == set()


def test_it_prints_the_next_step(hami_command: Run) -> None:
    done = hami_command("new-plugin", "acme-next")
    assert done.stdout.splitlines()[-3:] == [
        "",
        "to try it:  pip install 'acme-next/[test]' && pytest acme-next/tests",
        "to ship it: pip install 'hami-build[all]' && hami-build wheel acme-next",
    ]
    done = hami_command("new-plugin", "acme-next", "--folder", "a b/c")
    assert "\nto try it:  pip install 'a b/c/[test]' && pytest 'a b/c/tests'\n" in done.stdout


@pytest.mark.parametrize("kind", ["cpp", "python"])
def test_the_example_projects_equal_its_output(tmp_path: Path, kind: str) -> None:
    """To update one: hami new-plugin hami-example-cpp --cpp --folder examples/hami-example-cpp."""
    example, fresh = EXAMPLES / f"hami-example-{kind}", tmp_path / "fresh"
    write_project(f"hami-example-{kind}", kind, fresh)
    assert files_of(example) == files_of(fresh)
    for name in files_of(fresh):
        assert (example / name).read_text("utf-8") == (fresh / name).read_text("utf-8"), name
