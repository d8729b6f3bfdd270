"""`hami install`, `uninstall` and `download`, with an index of tiny wheels in a folder: no network."""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import json
import os
import shlex
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import hami
import pytest
import tiny_wheels
from tiny_index import PACKAGES, UV, HamiEnvironment, acme_index, write_index

from hami_tools.packages import environment, installers
from hami_tools.packages.environment import Environment
from hami_tools.packages.names import requirements
from hami_tools.packages.wheels import platform_tags

needs_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed")


@pytest.fixture
def index(tmp_path: Path) -> str:
    return acme_index(tmp_path)


@pytest.fixture
def with_pip(tmp_path: Path) -> HamiEnvironment:
    return HamiEnvironment(tmp_path / "env", "pip", *PACKAGES)


@pytest.fixture(params=[pytest.param("pip", marks=needs_pip), pytest.param("uv", marks=needs_uv)])
def either(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HamiEnvironment:
    """Return an environment with pip, or one without, as `uv venv` makes it."""
    if request.param == "pip":
        return HamiEnvironment(tmp_path / "env", "pip", *PACKAGES)
    monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    return HamiEnvironment(tmp_path / "env", *PACKAGES)


def test_a_plugin_is_previewed_installed_upgraded_and_removed(either: HamiEnvironment, index: str) -> None:
    preview = either.hami("install", "acme-one==1.0.0", "--index", index, "--dry-run")
    assert (preview.returncode, preview.stderr) == (0, "")
    assert preview.stdout == (
        f"install  acme-one  1.0.0\nnothing was changed; without --dry-run, this goes into {either.site}\n"
    )
    assert not list(either.site.glob("acme_one*"))

    done = either.hami("install", "acme-one==1.0.0", "--index", index)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "install  acme-one  1.0.0",
        f"installed into {either.site}",
        "acme-one provides AcmeOne",
    ]
    assert either.hami("run", "AcmeOne", "--data", "1").stdout == "acme-one 1.0.0\n"

    again = either.hami("install", "acme-one", "--index", index)
    assert again.stdout == "nothing to change: acme-one 1.0.0; newer versions: --upgrade\n"
    upgraded = either.hami("install", "acme-one", "--index", index, "--upgrade", "--json")
    assert json.loads(upgraded.stdout)["changes"] == [{"name": "acme-one", "old": "1.0.0", "new": "2.0.0"}]
    assert either.hami("run", "AcmeOne", "--data", "1").stdout == "acme-one 2.0.0\n"

    kept = either.hami("uninstall", "acme-one", "--dry-run")
    assert kept.stdout == "remove  acme-one  2.0.0\nnothing was changed\n"
    removed = either.hami("uninstall", "Acme_One")
    assert (removed.returncode, removed.stdout, removed.stderr) == (0, "remove  acme-one  2.0.0\n", "")
    assert not list(either.site.glob("acme_one*"))


@needs_pip
def test_a_backend_is_a_name_of_its_plugin(with_pip: HamiEnvironment, index: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    plugin = {"name": "acme-one", "backends": {"AcmeOne": {"summary": "Returns its name."}}}
    catalog.write_text(json.dumps({"format": 1, "plugins": [plugin]}))
    missing = with_pip.hami("run", "AcmeOne", "--data", "1", HAMI_CATALOG=str(catalog))
    command = missing.stderr.strip().rpartition(": ")[2]
    assert command == "pip install acme-one"
    done = with_pip.hami("install", "AcmeOne", "--index", index, HAMI_CATALOG=str(catalog))
    assert "acme-one provides AcmeOne" in done.stdout
    with_option = with_pip.hami("install", "AcmeOne", "--index", index, "--catalog", str(catalog))
    assert with_option.stdout.startswith("nothing to change: acme-one 2.0.0")


@needs_pip
def test_a_target_gets_only_what_is_missing_and_one_version(
    with_pip: HamiEnvironment, index: str, tmp_path: Path
) -> None:
    target = tmp_path / "my packages"
    install = ("--target", str(target), "--index", index)
    done = with_pip.hami("install", "acme-two", "acme-one==1.0.0", *install)
    assert done.stdout.splitlines()[-1] == f"to use it: export PYTHONPATH='{target}'"
    assert sorted(path.name for path in target.glob("*.dist-info")) == [
        "acme_one-1.0.0.dist-info",
        "acme_two-1.0.0.dist-info",
    ]
    upgraded = with_pip.hami("install", "acme-one", "--upgrade", *install, PYTHONPATH=str(target))
    assert "replace  acme-one  1.0.0 -> 2.0.0" in upgraded.stdout
    assert [path.name for path in target.glob("acme_one-*")] == ["acme_one-2.0.0.dist-info"]
    assert with_pip.hami("run", "AcmeOne", "--data", "1", PYTHONPATH=str(target)).stdout == "acme-one 2.0.0\n"
    kept = with_pip.hami("uninstall", "acme-two", PYTHONPATH=str(target))
    assert f"acme-two is in {target}, from which pip cannot remove it: rm -r '{target}/acme_two'" in kept.stderr


@needs_pip
@pytest.mark.parametrize("damage", ["no such project", "truncated wheel", "no wheel"])
def test_a_failed_installation_changes_nothing(
    with_pip: HamiEnvironment, index: str, tmp_path: Path, damage: str
) -> None:
    wheel = tmp_path / "wheels" / "acme_two-1.0.0-py3-none-any.whl"
    if damage == "truncated wheel":
        wheel.write_bytes(wheel.read_bytes()[:-100])
    elif damage == "no wheel":
        wheel.unlink()
    name = "acme-none" if damage == "no such project" else "acme-two"
    done = with_pip.hami("install", "acme-one", name, "--index", index)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: pip could not install acme-one, {name}; nothing was changed\n  ")
    assert not list(with_pip.site.glob("acme*"))


@pytest.fixture
def torch_index(tmp_path: Path) -> str:
    """Return an index with a plugin that requires torch, one that leaves it to an extra, and an empty torch."""
    wheels = tmp_path / "wheels"
    own = [
        tiny_wheels.plugin(wheels, "acme-net", "1.0.0", requires="torch>=2"),
        tiny_wheels.plugin(wheels, "acme-optional", requires='torch>=2; extra == "torch"\nProvides-Extra: torch'),
        tiny_wheels.empty(wheels, "torch", "2.9.0"),
    ]
    return write_index(tmp_path, own)


@needs_pip
def test_uv_chooses_the_build_of_torch(with_pip: HamiEnvironment, torch_index: str, tmp_path: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    info = with_pip.site / "torch-2.9.0+cu128.dist-info"
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cu128\n")
    install = f"mkdir -p {info} && cp {tmp_path}/METADATA {info}"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho " + torch==2.9.0+cu128" >&2\n'
        f'case "$*" in *--dry-run*) ;; *) {install} ;; esac\n'
    )
    uv.chmod(0o755)
    variables = {"PIP_INDEX_URL": torch_index, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    # uv does not say which files it takes: it would hide another publisher.
    assert with_pip.hami("trust", "acme-net", "--source", "https://files.example").returncode == 0
    refused = with_pip.hami("install", "acme-net", **variables)
    assert "acme-net came from https://files.example until now, and this file is from" in refused.stderr
    assert with_pip.hami("trust", "acme-net", "--forget").returncode == 0
    assert not (tmp_path / "calls").exists()
    done = with_pip.hami("install", "acme-net", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("install  torch  2.9.0+cu128\n")
    plan, install = (tmp_path / "calls").read_text().splitlines()
    assert plan.endswith("--dry-run --no-require-hashes --torch-backend=auto acme-net")
    assert install.endswith("--quiet --no-deps --torch-backend=auto torch==2.9.0+cu128")


@needs_pip
@pytest.mark.parametrize("uv", ["missing", "without the index"])
def test_without_uv_the_command_for_a_build_of_torch_is_printed(
    with_pip: HamiEnvironment, torch_index: str, tmp_path: Path, uv: str
) -> None:
    if uv != "missing":
        (tmp_path / "uv").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "uv").chmod(0o755)
    done = with_pip.hami("install", "acme-net", PIP_INDEX_URL=torch_index, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("\n  uv pip install --torch-backend=auto acme-net\n")
    assert "acme-net provides AcmeNet" in done.stdout


@needs_pip
def test_a_plugin_that_leaves_torch_to_an_extra_names_it(with_pip: HamiEnvironment, torch_index: str) -> None:
    done = with_pip.hami("install", "acme-optional", "--index", torch_index)
    assert "torch is not installed, which acme-optional needs: hami install 'acme-optional[torch]'\n" in done.stdout
    again = with_pip.hami("install", "acme-optional[torch]", "--index", torch_index)
    assert (again.stderr, again.stdout.partition("\n")[0]) == ("", "install  torch  2.9.0")


@needs_pip
def test_credentials_of_an_index_are_not_printed(with_pip: HamiEnvironment) -> None:
    address = "http://user:secret@127.0.0.1:9/simple"
    done = with_pip.hami("install", "acme-one", "--index", address, PIP_RETRIES="0")
    assert done.returncode == 1
    assert "secret" not in done.stdout + done.stderr


def test_without_an_installer_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    bare = HamiEnvironment(tmp_path / "bare", *PACKAGES)
    done = bare.hami("install", "acme-one", "--json", PATH="/nonexistent")
    assert json.loads(done.stdout) == {
        "error": f"{bare.python.parent.parent} contains no pip, and uv is not in PATH; run {bare.python} -m ensurepip, "
        "or install uv (https://docs.astral.sh/uv)",
        "type": "PluginError",
    }


@needs_pip
def test_downloaded_plugins_are_installed_without_an_index(
    with_pip: HamiEnvironment, index: str, tmp_path: Path
) -> None:
    folder = tmp_path / "packages"
    options = ("--platform", "aarch64", "--python-version", "3.13")
    done = with_pip.hami("download", "acme-two", "--to", str(folder), "--index", index, *options)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "acme_one-2.0.0-py3-none-any.whl",
        "acme_two-1.0.0-py3-none-any.whl",
        f"hami_core-{hami.__version__}-py3-none-any.whl",
        f"to install without a network: hami install --from {folder} acme-two",
    ]
    offline = with_pip.hami("install", "--from", str(folder), PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert sorted(offline.stdout.splitlines()[:2]) == ["install  acme-one  2.0.0", "install  acme-two  1.0.0"]
    (folder / "cut_off-1.0-py3-none-any.whl").write_bytes(b"PK\3\4")
    damaged = with_pip.hami("install", "--from", str(folder))
    assert "cut_off-1.0-py3-none-any.whl is not a complete wheel" in damaged.stderr
    empty = with_pip.hami("install", "--from", str(tmp_path / "wheels" / "none"))
    assert "is not a folder; give the folder that hami download wrote" in empty.stderr


@pytest.mark.parametrize("source", ["--from", "--index"])
def test_a_wheel_that_was_built_again_with_the_same_version_is_installed(
    either: HamiEnvironment, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    wheels = tmp_path / "wheels"
    where = str(wheels) if source == "--from" else index
    assert either.hami("install", source, where, "acme-one==1.0.0").returncode == 0
    assert either.hami("uninstall", "acme-one").returncode == 0
    tiny_wheels.plugin(wheels, "acme-one", "1.0.0", package="acme_again")
    write_index(tmp_path, sorted(wheels.iterdir()))
    assert either.hami("install", source, where, "acme-one==1.0.0").returncode == 0
    assert (either.site / "acme_again").is_dir()


@needs_pip
def test_only_plugins_that_nothing_requires_are_removed(with_pip: HamiEnvironment, index: str) -> None:
    with_pip.hami("install", "acme-two", "--index", index)
    for name, message in [
        ("acme-one", "acme-two requires acme-one; to remove both: hami uninstall acme-one acme-two"),
        ("pluggy", f"pluggy is not a plugin: remove it with {with_pip.python} -m pip uninstall pluggy"),
        ("acme-none", "acme-none is not installed; list the plugins that are: hami plugins"),
        ("hami-core", "hami-core is the program that runs: remove it with"),
    ]:
        done = with_pip.hami("uninstall", name)
        assert done.returncode == 1
        assert message in done.stderr
    assert with_pip.hami("uninstall", "acme-one", "acme-two").returncode == 0
    assert not list(with_pip.site.glob("acme*"))


def test_an_environment_managed_by_the_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(hami.PluginError) as caught:
        environment.require_changeable(Environment(str(tmp_path)), ["hami-onnx"])
    assert str(caught.value) == (
        f"this Python is managed by the system, which does not allow pip to change it ({tmp_path}/EXTERNALLY-MANAGED); "
        "create an environment of your own: python3 -m venv env && env/bin/pip install hami-core hami-onnx"
    )
    environment.require_changeable(Environment(str(tmp_path / "own"), target=True), ["hami-onnx"])


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(hami.PluginError, match=r"cannot write to .*/new/folder: .* is read-only for this user; create"):
        environment.require_changeable(Environment(str(tmp_path / "new" / "folder"), target=True), ["acme-one"])


def test_user_is_refused_in_a_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    with pytest.raises(hami.PluginError, match="--user has no effect in the virtual environment"):
        environment.chosen(user=True)
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert environment.chosen(user=True) == Environment(site.getusersitepackages(), user=True)


@pytest.mark.parametrize(
    ("receipt", "note"),
    [
        ("uv-receipt.toml", "uv tool install hami-core --with acme-one"),
        ("pipx_metadata.json", "pipx inject hami-core acme-one"),
    ],
)
def test_in_an_environment_of_a_tool_a_note_says_how_the_plugin_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str, note: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(environment, "installed_plugins", list)
    assert environment.tool_note(["acme-one"]) == ""
    (tmp_path / receipt).touch()
    assert environment.tool_note(["acme-one"]).endswith(note)


RECEIPT = """
[tool]
requirements = [
    { name = "hami-core", extras = ["tools"], specifier = ">=2" },
    { name = "hami-onnx" },
    { name = "acme-git", git = "https://example.org/acme.git" },
    { name = "acme-here", editable = "/src/acme-here" },
    { name = "acme-file", path = "/wheels/acme_file-1.0-py3-none-any.whl" },
]
python = "3.12"
"""


def test_the_command_for_a_uv_tool_keeps_every_plugin_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "hami-core"
    prefix.mkdir()
    (prefix / "uv-receipt.toml").write_text(RECEIPT)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(environment, "installed_plugins", lambda: ["acme-old", "hami-onnx"])
    command = environment.tool_note(["acme-one"]).partition("to keep it: ")[2]
    assert command == (
        "uv tool install --python 3.12 'hami-core[tools]>=2' --with hami-onnx "
        "--with 'acme-git @ git+https://example.org/acme.git' --with-editable /src/acme-here "
        "--with /wheels/acme_file-1.0-py3-none-any.whl --with acme-one --with acme-old"
    )


@needs_uv
def test_the_command_for_a_uv_tool_leaves_the_tool_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With uv itself: the tool is installed again from an index of tiny wheels, by the command of the note."""
    acme_index(tmp_path)
    wheels = tmp_path / "wheels"
    tiny_wheels.plugin(wheels, "acme-tool", script=True)
    settings = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_OFFLINE": "1"}
    settings |= {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}

    def uv(*arguments: str) -> None:
        subprocess.run([str(UV), *arguments], check=True, env={**os.environ, **settings}, timeout=120)

    uv("tool", "install", "--python", sys.executable, "acme-tool", "--with", "acme-one<2")
    prefix = tmp_path / "tools" / "acme-tool"
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(environment, "installed_plugins", lambda: ["acme-one", "acme-tool"])
    uv(*shlex.split(environment.tool_note(["acme-two"]).partition("to keep it: uv ")[2]))
    site_packages = str(next(prefix.glob("lib/python*/site-packages")))
    versions = {each.metadata["Name"]: each.version for each in metadata.distributions(path=[site_packages])}
    assert {"acme-tool": "1.0.0", "acme-one": "1.0.0", "acme-two": "1.0.0"}.items() <= versions.items()


def test_in_a_project_of_uv_the_command_adds_what_it_does_not_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(environment, "installed_plugins", lambda: ["hami-onnx", "acme-old"])
    (tmp_path / "pyproject.toml").touch()
    assert environment.tool_note(["acme-one"]) == ""
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "hami-onnx"\nversion = "2.0.0"\n')
    assert environment.tool_note(["acme-one"]).endswith(f"uv add --project {tmp_path} acme-one acme-old")


BACKENDS = {"AcmeOne": ["acme-one"], "ResizeMat": ["acme-cv", "hami-image"]}
KNOWN = ["acme-one", "acme-cv", "hami-image", "hami-trt"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["acme-one", "AcmeOne", "acme_one"], ["acme-one"]),
        (["Hami.TRT[cu13]>=2.0, <3"], ["hami-trt[cu13]>=2.0,<3"]),
        (["acme-unlisted"], ["acme-unlisted"]),
    ],
)
def test_names_become_requirements(asked: list[str], found: list[str]) -> None:
    assert requirements(asked, BACKENDS, KNOWN) == found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ResizeMat", 'backend "ResizeMat" is provided by acme-cv and hami-image; name one of them'),
        ("AcmeOnne", 'no known plugin or backend is named "AcmeOnne"; did you mean AcmeOne'),
        ("Qwertyuiop", 'no known plugin or backend is named "Qwertyuiop"; list all: hami search\n  a package that'),
        ("./acme.whl", '"./acme.whl" is not the name of a plugin or of a backend'),
        ("acme @ https://x", "is not the name of a plugin or of a backend"),
        ("--index-url=x", "is not the name of a plugin or of a backend"),
        ("", '"" is not the name of a plugin or of a backend'),
    ],
)
def test_names_that_nobody_means_are_refused(asked: str, message: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        requirements([asked], BACKENDS, KNOWN)
    assert message in str(caught.value)


def test_platforms_include_the_older_ones_that_they_run() -> None:
    tags = platform_tags("manylinux2014_x86_64")
    assert tags[:2] == ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert tags[-3:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    assert platform_tags("aarch64")[0] == "manylinux_2_28_aarch64"
    with pytest.raises(hami.PluginError, match=r'--platform takes .* got "win32"'):
        platform_tags("win32")


def test_a_folder_is_an_index_too(tmp_path: Path) -> None:
    sources = installers.Sources([str(tmp_path), "https://pypi.org/simple"])
    assert sources.options() == ["--index-url", tmp_path.as_uri(), "--extra-index-url", "https://pypi.org/simple"]
    (tmp_path / "simple").mkdir()  # as hami-build index writes it
    assert sources.options()[1] == f"{tmp_path.as_uri()}/simple"
    with pytest.raises(hami.PluginError) as caught:
        installers.Sources([str(tmp_path / "none")]).options()
    assert str(caught.value).endswith('/none" is not an address such as https://packages.example/simple, nor a folder')


@pytest.mark.parametrize(
    "setting",
    [{"FORCE_COLOR": "1"}, {"PIP_VERBOSE": "3"}, {"CLICOLOR_FORCE": "1"}, {"PIP_QUIET": "3"}, {"RUST_LOG": "uv=debug"}],
)
def test_settings_for_what_installers_print_change_nothing(
    either: HamiEnvironment, index: str, setting: dict[str, str]
) -> None:
    done = either.hami("install", "acme-one==1.0.0", "--index", index, **setting)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "install  acme-one  1.0.0"
    assert list(either.site.glob("acme_one*"))


def test_settings_for_another_place_of_pip_change_nothing(
    with_pip: HamiEnvironment, index: str, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    settings = {f"PIP_{name}": elsewhere for name in ("TARGET", "PREFIX", "ROOT", "PYTHON", "REQUIREMENT", "EDITABLE")}
    settings |= {"PIP_PLATFORM": "win_amd64", "PIP_PYTHON_VERSION": "3.9"}
    done = with_pip.hami("install", "acme-one==1.0.0", "--index", index, **settings, PIP_USER="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(with_pip.site.glob("acme_one*"))
    assert not Path(elsewhere).exists()


def test_an_error_of_pip_is_repeated_with_the_lines_that_belong_to_it() -> None:
    output = "WARNING: old\nERROR: These have no hash:\n    acme-one from file:///a\n    acme-two\nnotice\nERROR: end\n"
    error = installers._failed("pip", "install", ["acme-one"], output)
    assert str(error).splitlines()[1:] == [
        "  These have no hash:",
        "  acme-one from file:///a",
        "  acme-two",
        "  end",
    ]


@pytest.mark.parametrize("given", ["in a file", "as variables"])
def test_flags_in_the_settings_of_pip_change_nothing(
    with_pip: HamiEnvironment, index: str, tmp_path: Path, given: str
) -> None:
    flags = {"no-deps": "true", "dry-run": "true", "user": "true", "ignore-installed": "true", "quiet": "3"}
    flags["require-hashes"] = "true"  # each file has one
    settings = {f"PIP_{flag.upper().replace('-', '_')}": value for flag, value in flags.items()}
    if given == "in a file":
        lines = (f"{flag} = {value}\n" for flag, value in flags.items())
        (tmp_path / "pip.conf").write_text("[install]\n" + "".join(lines))
        settings = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    done = with_pip.hami("install", "acme-two", "--index", index, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(folder.name for folder in with_pip.site.glob("acme*.dist-info")) == [
        "acme_one-2.0.0.dist-info",
        "acme_two-1.0.0.dist-info",
    ]


@needs_uv
@pytest.mark.parametrize("setting", ["no-deps = true in uv.toml", "UV_OFFLINE"])
def test_settings_of_uv_leave_out_no_requirement_and_keep_a_folder_usable_offline(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    without_pip = HamiEnvironment(tmp_path / "env", *PACKAGES)
    (tmp_path / "uv.toml").write_text("[pip]\nno-deps = true\n")
    settings = {"UV_OFFLINE": "1"} if setting == "UV_OFFLINE" else {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")}
    done = without_pip.hami("install", "acme-two", "--index", index, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(without_pip.site.glob("acme_*.dist-info"))) == 2


@needs_uv
@pytest.mark.parametrize("setting", ["require-hashes = true in uv.toml", "UV_REQUIRE_HASHES"])
@pytest.mark.parametrize("source", ["--from", "--index"])
def test_hashes_that_the_settings_of_uv_require_are_those_of_the_index(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, setting: str
) -> None:
    monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    without_pip = HamiEnvironment(tmp_path / "env", *PACKAGES)
    where = str(tmp_path / "wheels") if source == "--from" else index
    (tmp_path / "uv.toml").write_text("[pip]\nrequire-hashes = true\n")
    settings = {setting: "1"} if setting == "UV_REQUIRE_HASHES" else {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")}
    done = without_pip.hami("install", "acme-two", source, where, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(without_pip.site.glob("acme_*.dist-info"))) == 2


@needs_uv
def test_an_installation_with_hashes_changes_nothing_where_settings_of_uv_leave_a_package_out(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    without_pip = HamiEnvironment(tmp_path / "env", *PACKAGES)
    (tmp_path / "uv.toml").write_text('[pip]\nno-emit-package = ["acme-two"]\nno-annotate = true\n')
    settings = {"UV_CONFIG_FILE": str(tmp_path / "uv.toml"), "UV_REQUIRE_HASHES": "1"}
    done = without_pip.hami("install", "acme-two", "--index", index, **settings)
    assert done.returncode == 1
    assert "uv left acme-two out of its resolution; nothing was changed; remove no-emit-package" in done.stderr
    assert not list(without_pip.site.glob("acme_*"))


def test_the_build_of_torch_is_chosen_also_where_the_settings_of_uv_require_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real torch is a large download, so this uv only writes its calls down."""
    wheel = "torch-2.9.0+cu128-py3-none-any.whl"
    (tmp_path / "pylock.toml").write_text(
        f'[[packages]]\nname = "torch"\nversion = "2.9.0+cu128"\n'
        f'wheels = [{{url = "https://packages.example/{wheel}", hashes = {{sha256 = "{"0" * 64}"}}}}]\n'
    )
    program = tmp_path / "uv"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'case "$*" in *--output-file*) cp {tmp_path}/pylock.toml "$6" ;; *--require-hashes*) ;;\n'
        '*) echo "error: In --require-hashes mode, all requirements must have a hash" >&2; exit 2 ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    change = installers.Change("torch", "", "2.9.0+cu128")
    installers.Uv().install([change], installers.Sources(torch_backend="auto"), Environment(str(tmp_path)))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["--torch-backend=auto" in call for call in calls] == [True] * 3


def test_an_installation_in_another_place_is_not_reported_as_done(
    with_pip: HamiEnvironment, index: str, tmp_path: Path
) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nroot = {tmp_path / 'elsewhere'}\n")
    done = with_pip.hami("install", "acme-one==1.0.0", "--index", index, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    assert done.returncode == 1
    assert "but acme-one 1.0.0 is not in" in done.stderr


def test_a_plan_of_uv_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\necho 'a plan in another form' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(hami.PluginError, match="reports its plan in a way that this hami-core does not read"):
        installers.Uv().plan(["acme-one"], installers.Sources(), Environment(str(tmp_path)), upgrade=False)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by "
            "'SSLError(1, CERTIFICATE_VERIFY_FAILED)': /x/\n"
            "ERROR: Could not find a version that satisfies the requirement acme-one (from versions: none)\n"
            "ERROR: No matching distribution found for acme-one\n",
            "CERTIFICATE_VERIFY_FAILED",
        ),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(Connection refused)': /x/\n"
            "ERROR: No matching distribution found for acme-one\n",
            "Connection refused",
        ),
    ],
)
def test_the_reason_why_an_index_gave_no_answer_is_shown(output: str, reason: str) -> None:
    text = str(installers._failed("pip", "install", ["acme-one"], output))
    assert "No matching distribution found" in text
    assert reason in text
