"""Workflows, cibuildwheel settings and images, which only other services run, are valid as far as seen offline."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import catalog
import pytest
from _lib import dist, environments, project_templates, releases
from _lib.paths import ROOT, pyproject
from _lib.tiers import ALWAYS, EDGES, TIERS, WITH_ALL, edges_of, version_in
from hami_build.steps import environment
from packaging.requirements import Requirement

PROJECTS = list(releases.projects(ROOT).values())
NATIVE = [folder for folder in dist.folders() if dist.is_native(folder)]

Tool = Callable[..., str]


@pytest.fixture(scope="session")
def tool() -> Tool:
    """tool(program, *arguments) -> what it printed; the test fails if the program does."""
    folder = environments.ensure("cibuildwheel").parent

    def call(program: str, *arguments: object) -> str:
        command = [str(folder / program), *map(str, arguments)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    return call


@pytest.mark.parametrize(("plugin", "library"), EDGES.items())
def test_the_edges_of_a_plugin_are_versions_that_it_accepts(plugin: str, library: str) -> None:
    edges = edges_of(ROOT / "hami-plugins" / plugin, library)
    oldest, newest = Requirement(edges["oldest"]), Requirement(edges["newest"])
    assert newest.specifier.contains(next(iter(oldest.specifier)).version)
    assert edges["newest"] in map(
        str, map(Requirement, pyproject(ROOT / "hami-plugins" / plugin)["project"]["dependencies"])
    )


def test_the_version_of_a_distribution_in_another_environment_is_read() -> None:
    assert version_in(Path(sys.executable), "packaging") == metadata.version("packaging")


@pytest.fixture(params=project_templates.kinds())
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A project that `hami new-plugin` writes."""
    project_templates.write(request.param, tmp_path)
    return tmp_path


def check_workflows(tool: Tool, root: Path) -> None:
    files = sorted((root / ".github" / "workflows").glob("*.yml"))
    assert files
    tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)


def test_workflows_are_valid(tool: Tool) -> None:
    check_workflows(tool, ROOT)


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("dependabot", "dependabot.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[bf]*.yml"),
    ],
)
def test_settings_of_the_code_host_are_valid(tool: Tool, schema: str, pattern: str) -> None:
    files = sorted((ROOT / ".github").glob(pattern))
    assert files
    tool("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_pull_requests_run_the_tiers_of_the_full_run() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    named = " ".join(
        [
            *re.findall(r"ci/test ([a-z -]+)$", text, re.MULTILINE),
            *re.findall(r"^ +- ([a-z][a-z -]+)$", text, re.MULTILINE),
        ]
    )
    assert sorted(named.split()) == sorted(name for name, tier in TIERS.items() if tier.when in (ALWAYS, WITH_ALL))


def test_commits_are_checked_by_the_tools_of_ci_check() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    programs = re.findall(r"language: system\n +entry: (\S+)", text)
    assert set(programs) == {"ruff", "mypy", "clang-format", "codespell", "python"}
    assert (ROOT / "ci" / "check_layers.py").is_file()


def test_projects_are_valid(tool: Tool) -> None:
    tool("validate-pyproject", *(folder / "pyproject.toml" for folder in PROJECTS))


def test_written_projects_are_valid(tool: Tool, written: Path) -> None:
    check_workflows(tool, written)
    tool("validate-pyproject", written / "pyproject.toml")


def identifiers(tool: Tool, project: Path) -> list[str]:
    return tool("cibuildwheel", "--print-build-identifiers", "--platform", "linux", project).split()


def test_cibuildwheel_builds_the_core_for_every_python_and_not_for_musl(tool: Tool) -> None:
    found = identifiers(tool, ROOT)
    assert [name.partition("-")[0] for name in found] == ["cp310", "cp311", "cp312", "cp313", "cp314", "cp315"]
    assert not [name for name in found if "musllinux" in name]


@pytest.mark.skipif(not NATIVE, reason="there is no native plugin in hami-plugins/")
def test_cibuildwheel_builds_one_wheel_of_each_native_plugin(tool: Tool) -> None:
    assert {plugin.name: len(identifiers(tool, plugin)) for plugin in NATIVE} == {plugin.name: 1 for plugin in NATIVE}


@pytest.mark.parametrize("project", [ROOT, *NATIVE], ids=lambda folder: folder.name)
def test_cibuildwheel_adds_the_bill_of_materials(project: Path) -> None:
    repair = pyproject(project)["tool"]["cibuildwheel"]["repair-wheel-command"]
    assert repair[-1] == "python {project}/ci/finish_wheel.py --destination {dest_dir} /tmp/repaired/*.whl"


@pytest.mark.parametrize("written", ["cpp", "cuda"], indirect=True)
def test_cibuildwheel_builds_one_wheel_of_a_written_project(tool: Tool, written: Path) -> None:
    assert len(identifiers(tool, written)) == 1


def test_wrong_key_of_cibuildwheel_is_found(tool: Tool, tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8").replace("test-command =", "test-comand =")
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(AssertionError, match="test-comand"):
        identifiers(tool, tmp_path)
    with pytest.raises(AssertionError, match="test-comand"):
        tool("validate-pyproject", tmp_path / "pyproject.toml")


def test_release_workflow_runs_what_is_here() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    commands = set(re.findall(r"\bci/\w+", text))
    assert commands >= {"ci/wheels", "ci/audit", "ci/release"}
    assert all((ROOT / command).is_file() for command in commands)


def test_workflow_builds_every_native_plugin() -> None:
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text("utf-8")
    named = re.findall(r"plugin: \[(.+)\]", text)[0].split(", ")
    assert named == [plugin.name for plugin in NATIVE]


def test_images_install_packages_that_are_here() -> None:
    """The packages of ours that their defaults name have a folder, or a decided name."""
    ours = {*releases.projects(ROOT), *catalog.PLANNED}
    for dockerfile in (ROOT / "docker").glob("*/Dockerfile"):
        names = set(re.findall(r"\bhami-[a-z]+\b", "".join(re.findall(r"ARG PACKAGES=(.*)", dockerfile.read_text()))))
        assert names <= ours, dockerfile


def test_the_image_of_the_server_starts_it_with_options_that_it_has() -> None:
    text = (ROOT / "docker" / "serve" / "Dockerfile").read_text("utf-8")
    words = [word for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.+)$", text, re.MULTILINE) for word in json.loads(line)]
    commands = (ROOT / "hami-plugins" / "hami-serve" / "python" / "hami_serve" / "commands.py").read_text("utf-8")
    assert words[:2] == ["hami", "serve"]
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r'"(--[a-z-]+)"', commands))
    (ports,) = re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE)
    assert ports.split() == [word for word in words if word.isdecimal()]


def test_requirements_that_are_the_same_are_pinned_the_same() -> None:
    pins: dict[str, set[str]] = {}
    for file in (ROOT / "ci" / "requirements").glob("*.txt"):
        for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", file.read_text("utf-8"), re.MULTILINE):
            pins.setdefault(name, set()).add(version)
    dockerfile = (ROOT / "docker" / "local" / "Dockerfile").read_text("utf-8")
    for name, version in re.findall(r"([\w-]+)==([\w.]+)", dockerfile):
        pins[name].add(version)
    assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}
    assert pyproject(ROOT)["build-system"]["requires"] == ["scikit-build-core>=1.1", "pybind11>=3.1"]
