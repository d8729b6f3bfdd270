"""`hami doctor` on files and metadata that pip leaves after some installs: the problem and its fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from conftest import Run, Site
from fake_site import write_metadata, write_plugin, write_record
from hami.packages import reinstall


@pytest.fixture
def problems(hami_command: Run, site: Site) -> Callable[..., list[str]]:
    """Return a function that gives the problems of hami doctor that begin with one of these names."""

    def problems(*names: str, path: str = "") -> list[str]:
        done = hami_command("doctor", "--json", site=Path(f"{site.folder}{path}"))
        return [line for line in json.loads(done.stdout)["problems"] if line.startswith(names)]

    return problems


def plugin(folder: Path, name: str, version: str = "1.0", requires: str = "") -> Path:
    """Install a plugin with its RECORD and return its dist-info folder."""
    info = write_plugin(folder, name, version, name.title().replace("-", ""))
    if requires:
        with (info / "METADATA").open("a") as metadata:
            metadata.write(f"Requires-Dist: {requires}\n")
    write_record(folder, info, f"{name.replace('-', '_')}_plugin.py", f"{info.name}/METADATA")
    return info


def test_a_complete_plugin_is_not_reported(problems: Callable[..., list[str]], site: Site) -> None:
    plugin(site.folder, "acme-a", requires="hami-core>=0.1")
    assert problems("acme-a") == []


def test_a_script_in_another_place_than_its_metadata_say_is_not_reported(
    problems: Callable[..., list[str]], site: Site
) -> None:
    info = plugin(site.folder, "acme-a")
    with (info / "RECORD").open("a") as record:
        record.write("../../bin/acme-a,sha256=pR1WcwBDJ_UJ1zkNQXPRfNWPMIvTLWxdj6XYOWg5ITk,\n")
    assert problems("acme-a") == []


def test_metadata_of_the_previous_version_are_reported(problems: Callable[..., list[str]], site: Site) -> None:
    stale = plugin(site.folder, "acme-a", "0.9")
    info = plugin(site.folder, "acme-a", "1.0")
    with (site.folder / "acme_a_plugin.py").open("a") as module:
        module.write("# a newer version\n")
    write_record(site.folder, info, "acme_a_plugin.py")
    assert problems("acme-a") == [
        f"acme-a has the metadata of 2 versions in {site.folder}: 0.9, 1.0. The files belong to 1.0: rm -r {stale}"
    ]


def test_metadata_that_match_no_installed_files_are_reported(problems: Callable[..., list[str]], site: Site) -> None:
    infos = [plugin(site.folder, "acme-a", "0.9"), plugin(site.folder, "acme-a", "1.0")]
    (site.folder / "acme_a_plugin.py").unlink()
    assert problems("acme-a has") == [
        f"acme-a has the metadata of 2 versions in {site.folder}: 0.9, 1.0. The files belong to none of them: "
        f"rm -r {infos[0]} {infos[1]}; pip install --upgrade --no-deps --target {site.folder} acme-a"
    ]


def test_all_metadata_without_a_list_of_files_are_reported(problems: Callable[..., list[str]], site: Site) -> None:
    for version in ("0.9", "1.0"):
        write_plugin(site.folder, "acme-a", version, "AcmeA")
    infos = f"{site.folder}/acme_a-0.9.dist-info {site.folder}/acme_a-1.0.dist-info"
    assert problems("acme-a") == [
        f"acme-a has the metadata of 2 versions in {site.folder}: 0.9, 1.0. The files belong to none of them: "
        f"rm -r {infos}; pip install --upgrade --no-deps --target {site.folder} acme-a"
    ]


def test_a_second_folder_with_the_same_plugin_is_reported(
    problems: Callable[..., list[str]], site: Site, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    plugin(site.folder, "acme-a", "1.0")
    plugin(other, "acme-a", "0.9")
    assert problems("acme-a", path=f":{other}") == [
        f"acme-a is installed 2 times: 1.0 in {site.folder} hides 0.9 in {other}. "
        "pip uninstall acme-a removes the first"
    ]


def test_a_missing_or_changed_file_is_reported(problems: Callable[..., list[str]], site: Site) -> None:
    plugin(site.folder, "acme-a")
    (site.folder / "acme_a_plugin.py").write_text("changed = True\n")
    assert problems("acme-a 1.0 in") == [
        f"acme-a 1.0 in {site.folder} is damaged: 1 of its 2 files are missing or were replaced, such as "
        f"acme_a_plugin.py: pip install --upgrade --no-deps --target {site.folder} acme-a"
    ]


def test_a_file_of_two_plugins_is_reported_once(problems: Callable[..., list[str]], site: Site) -> None:
    for name in ("acme-a", "acme-b"):
        info = plugin(site.folder, name)
        (site.folder / "acme").mkdir(exist_ok=True)
        for file in ("one.py", "two.py"):
            (site.folder / "acme" / file).write_text(f"name = {name!r}\n")
        write_record(site.folder, info, "acme/one.py", "acme/two.py")
    assert problems("acme-") == [
        f"acme-a and acme-b both contain {site.folder}/acme/one.py; the one installed last has overwritten it: "
        "uninstall one of them"
    ]


def test_a_plugin_that_needs_a_newer_core_is_reported(problems: Callable[..., list[str]], site: Site) -> None:
    plugin(site.folder, "acme-a", requires="hami-core>=99")
    assert problems("acme-a") == [
        f"acme-a 1.0 requires hami-core>=99, but {hami.__version__} is installed: pip install --upgrade 'hami-core>=99'"
    ]


def test_a_plugin_that_needs_a_newer_plugin_is_reported(problems: Callable[..., list[str]], site: Site) -> None:
    plugin(site.folder, "acme-a", "1.0")
    plugin(site.folder, "acme-b", requires="acme-a>=2")
    assert problems("acme-b") == [
        "acme-b 1.0 requires acme-a>=2, but 1.0 is installed: pip install --upgrade 'acme-a>=2'"
    ]


def test_metadata_of_another_core_are_reported(problems: Callable[..., list[str]], site: Site) -> None:
    write_metadata(site.folder, "hami-core", "0.0.1")
    assert problems("hami-core is installed")[0].startswith(
        f"hami-core is installed 2 times: 0.0.1 in {site.folder} hides {hami.__version__} in "
    )


def test_sources_of_an_editable_project_are_never_overwritten(
    problems: Callable[..., list[str]], site: Site, tmp_path: Path
) -> None:
    """setuptools leaves an .egg-info beside the sources, which are on the path of an editable installation."""
    plugin(site.folder, "acme-a")
    sources = tmp_path / "sources"
    egg = sources / "acme_a.egg-info"
    egg.mkdir(parents=True)
    (sources / "pyproject.toml").write_text("")
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: acme-a\nVersion: 1.0\n")
    (egg / "SOURCES.txt").write_text("acme_a/__init__.py\n")
    (egg / "entry_points.txt").write_text("[hami]\nacme-a = acme_a.plugin\n")
    assert problems("acme-a", path=str(sources)) == []
    metadata_of_another_version = sources / "acme_a-0.9.dist-info"
    metadata_of_another_version.mkdir()
    (metadata_of_another_version / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-a\nVersion: 0.9\n")
    assert not any("--target" in line for line in problems("acme-a", path=str(sources)))
    assert reinstall("acme-a", str(sources)) == f"pip install --no-deps --editable {sources}"
