"""A model file is a source: the plugin that declares its extension in its metadata opens it."""

from __future__ import annotations

from pathlib import Path

import hami
import hami.config
import pytest
from conftest import Run, Site
from fake_site import write_plugin
from hami._plugins.manager import installed

OPENS = """
@pluggy.HookimplMarker("hami")
def hami_open_model(path):
    return {{"backend": "{backend}", "model": path}}

@pluggy.HookimplMarker("hami")
def hami_show_file(path):
    return {{"inputs": ["x", "y"], "size": 7}} if path.endswith(".{extension}") else None
"""


def write_engine(site: Site, distribution: str, backend: str, extension: str = "acme") -> None:
    """Write a plugin whose backend returns its data, and which opens the files of an extension."""
    info = write_plugin(site.folder, distribution, "1.0", backend)
    module = f"{distribution.replace('-', '_')}_plugin"
    file = site.folder / f"{module}.py"
    text = file.read_text().replace("def forward", "model: hami.types.FilePath\n    def forward")
    file.write_text(text + OPENS.format(backend=backend, extension=extension))
    with (info / "entry_points.txt").open("a") as entries:
        entries.write(f"[hami.models]\n{extension} = {module}\n")


@pytest.fixture(autouse=True)
def own_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process look for plugins again, and give it back what it knows after the test."""
    monkeypatch.setattr(installed, "_index", None)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return the path of a file with an extension that no first-party plugin knows."""
    file = tmp_path / "net.acme"
    file.write_bytes(b"weights")
    return str(file)


def test_the_plugin_that_declares_the_extension_of_a_file_runs_it(site: Site, model: str) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    capitals = Path(model).with_name("NET.ACME")
    capitals.touch()
    for source in (model, Path(model), str(capitals)):
        with hami.pipe(source) as pipe:
            assert pipe({"data": 3})["result"] == 3
    assert hami.config.model_keys(model) == {"backend": "AcmeNet", "model": model}


def test_commands_take_a_model_file_with_settings(site: Site, model: str, hami_command: Run) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    done = hami_command("run", model, "--data", "[1, 2]", "--json", site=site.folder)
    assert (done.returncode, done.stdout) == (0, '{"input": "--data", "result": [1, 2]}\n')
    done = hami_command("check", model, "--set", "max=4", site=site.folder)
    assert (done.returncode, done.stdout) == (0, f"{model}: no problems, 1 node\n")


def test_two_plugins_for_one_extension_are_an_error_that_names_both_and_the_key(
    site: Site, model: str, hami_command: Run
) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    write_engine(site, "other-engine", "OtherNet")
    text = hami_command("run", model, "--text", "a", site=site.folder).stderr
    assert 'can be opened by acme-engine and other-engine; choose with backend = "acme-engine::AcmeNet" or' in text
    assert "--set backend=other-engine::OtherNet" in text
    chosen = "backend=other-engine::OtherNet"
    done = hami_command("run", model, "--text", "a", "--set", chosen, site=site.folder)
    assert (done.returncode, done.stdout) == (0, "a\n")


def test_a_plugin_that_knows_a_layout_of_folders_finds_the_model_in_them(site: Site, model: str) -> None:
    write_engine(site, "folder-engine", "FolderNet", "model-folder")
    plugin = site.folder / "folder_engine_plugin.py"
    found = 'path.endswith("known") and {"model": path + "/net.acme"} or None'
    plugin.write_text(plugin.read_text().replace('{"backend": "FolderNet", "model": path}', found))
    folder = Path(model).parent / "known"
    folder.mkdir()
    Path(model).rename(folder / "net.acme")
    nodes = {"a": {"backend": "FolderNet", "model": str(folder)}, "b": {"backend": "FolderNet"}}
    config, problems = hami.config.read_source("FolderNet", [f"model={folder}"])
    assert (config.nodes["default"]["model"], problems) == (str(folder / "net.acme"), [])
    with hami.pipe({**nodes, "global": {"model": str(folder)}}) as pipe:
        assert pipe({"data": 3, "node_name": "b"})["result"] == 3
    with pytest.raises(hami.ConfigError, match=r'"model" of FolderNet: file ".*" is a folder'):
        hami.pipe({"backend": "FolderNet", "model": str(folder.parent)})


@pytest.mark.parametrize("both", [False, True])
def test_a_file_that_is_also_a_source_of_its_own_is_an_error_that_says_what_to_do(
    site: Site, model: str, hami_command: Run, both: bool
) -> None:
    for name, backend in (("acme-engine", "AcmeNet"), ("other-engine", "OtherNet")):
        write_engine(site, name, backend)
        plugin = site.folder / f"{name.replace('-', '_')}_plugin.py"
        if both or backend == "OtherNet":
            answer = f'{{"backend": "{backend}", "model": path}}'
            plugin.write_text(plugin.read_text().replace(answer, '{"source": path}'))
    text = hami_command("run", model, "--text", "a", site=site.folder).stderr
    remedy = (
        "keep one of them: hami uninstall other-engine" if both else 'choose with backend = "acme-engine::AcmeNet":'
    )
    assert f"can be opened by acme-engine and other-engine; {remedy}" in text


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("int(path)", r"failed for \".*net\.acme\": ValueError: invalid literal"),
        ("exit(3)", r"failed for \".*net\.acme\": it called sys\.exit\(3\)"),
        ("[path]", r"must return a dict with the text \"backend\" or None for \".*net\.acme\"; it returned \["),
        ("{'model': path}", r"must return a dict with the text \"backend\" or None"),
    ],
)
def test_a_hook_that_fails_for_a_file_is_a_problem_that_names_plugin_and_file(
    site: Site, model: str, answer: str, problem: str
) -> None:
    name = f"failing-{sum(map(ord, answer))}"  # the manager of the process keeps plugins by name
    write_engine(site, name, "FailingNet")
    plugin = site.folder / f"{name.replace('-', '_')}_plugin.py"
    plugin.write_text(plugin.read_text().replace('{"backend": "FailingNet", "model": path}', answer))
    with pytest.raises(hami.ConfigError, match=rf"hami_open_model of {name} 1\.0 {problem}"):
        hami.pipe(model)


def test_a_hook_that_fails_for_a_folder_is_a_problem_that_names_plugin_and_folder(site: Site, model: str) -> None:
    write_engine(site, "lost-engine", "LostNet", "model-folder")
    plugin = site.folder / "lost_engine_plugin.py"
    plugin.write_text(plugin.read_text().replace('{"backend": "LostNet", "model": path}', "open(path + '/lost.json')"))
    _, problems = hami.config.read_source("LostNet", [f"model={Path(model).parent}"])
    (problem,) = map(str, problems)
    assert f'hami_open_model of lost-engine 1.0 failed for "{Path(model).parent}": ' in problem
    assert "FileNotFoundError" in problem


def test_a_disabled_plugin_opens_no_file(site: Site, model: str, hami_command: Run) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    done = hami_command("run", model, "--text", "a", site=site.folder, HAMI_PLUGINS="no:engine")
    assert done.returncode == 1
    assert "acme-engine 1.0: disabled by HAMI_PLUGINS=no:engine" in done.stderr


def test_a_model_file_that_does_not_exist_is_named(site: Site, tmp_path: Path, hami_command: Run) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    with pytest.raises(hami.ConfigError, match=r'the model file ".*missing\.acme" does not exist'):
        hami.pipe(str(tmp_path / "missing.acme"))
    shown = hami_command("show", "missing.acme", site=site.folder)
    assert (shown.returncode, 'the model file "missing.acme" does not exist' in shown.stderr) == (1, True)


def test_a_file_of_the_catalogue_says_what_to_install(site: Site, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    with pytest.raises(hami.ConfigError, match=r'opens ".*net\.onnx": pip install hami-onnx'):
        hami.pipe(str(tmp_path / "net.onnx"))


def test_a_file_with_an_extension_that_no_plugin_declares_is_not_a_model(site: Site, tmp_path: Path) -> None:
    (tmp_path / "net.zip").touch()
    assert hami.config.model_file(str(tmp_path / "net.zip")) is None
    with pytest.raises(hami.ConfigError, match=r"is not an expression; .* files that end in \.zip"):
        hami.pipe(str(tmp_path / "net.zip"))


def test_show_says_what_a_plugin_that_fails_and_one_that_reads_the_file_say(
    site: Site, model: str, hami_command: Run
) -> None:
    write_engine(site, "acme-engine", "AcmeNet")
    write_engine(site, "broken-engine", "BrokenNet")
    file = site.folder / "broken_engine_plugin.py"
    file.write_text(file.read_text().replace("return {", "raise hami.ConfigError('too new') or {"))
    done = hami_command("show", model, site=site.folder)
    assert done.returncode == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    first = lines.index(f"{model}, read by acme-engine 1.0")
    assert lines[first : first + 4] == [lines[first], "inputs x", "y", "size 7"]
    assert lines[lines.index(f"{model}, read by broken-engine 1.0") + 1] == "error too new"
