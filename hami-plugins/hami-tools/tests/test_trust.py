"""The policy of the administrator for installations, and `hami verify-plugins`."""

from __future__ import annotations

import json
import os
import py_compile
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Site
from fake_site import write_plugin, write_record
from hami.packages import load_local, policy

from hami_tools.packages import catalog

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="a policy file belongs to root")


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    """Return a catalogue with plugins of several grades."""
    grades = {"acme-gold": "gold", "acme-bronze": "bronze", "acme-failed": "none"}
    plugins = [{"name": name, "grade": grade} for name, grade in grades.items()] + [{"name": "acme-plain"}]
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps({"format": 1, "plugins": plugins}))
    return file


@ROOT_ONLY
@pytest.mark.parametrize(
    ("wanted", "changed", "refused"),
    [
        (["acme-gold"], ["numpy", "hami-core"], ""),
        (["hami-core"], [], ""),
        (["acme-bronze"], [], "acme-bronze has the grade bronze"),
        (["acme-failed"], [], "acme-failed has the grade none"),
        (["acme-plain"], [], "acme-plain has no grade"),
        (["acme-elsewhere"], [], "acme-elsewhere has no grade"),
        (["acme-gold"], ["numpy", "acme-bronze"], "acme-bronze has the grade bronze"),
    ],
)
def test_a_plugin_of_a_low_grade_is_not_installed(
    write_policy: Any, graded: Path, wanted: list[str], changed: list[str], refused: str
) -> None:
    path = write_policy(f'catalog = "{graded}"\nrequire_grade = "silver"')
    assert policy.fact() == {"policy": f"{path}; catalog {graded}; require_grade silver"}
    if not refused:
        return catalog.require_grades(wanted, changed)
    with pytest.raises(hami.PluginError) as caught:
        catalog.require_grades(wanted, changed)
    ask = "ask the administrator of this machine"
    assert str(caught.value) == f"{refused} in the catalogue {graded}, and {path} requires silver; {ask}"


@ROOT_ONLY
def test_users_cannot_choose_another_catalogue_than_that_of_the_policy(write_policy: Any, graded: Path) -> None:
    path = write_policy(f'catalog = "{graded}"')
    other = {"HAMI_CATALOG": "/elsewhere.json"}
    assert catalog.load(None, other).source == catalog.load(str(graded), other).source == str(graded)
    assert load_local(other).source == str(graded)
    with pytest.raises(hami.PluginError) as caught:
        catalog.load("/elsewhere.json")
    assert str(caught.value) == f"{path} names the catalogue of this machine, {graded}: leave out --catalog"


def test_verify_names_the_file_that_differs(hami_command: Any, site: Site) -> None:
    info = write_plugin(site.folder, "acme-one", "1.0", "AcmeOne")
    module = site.folder / "acme_one_plugin.py"
    other = site.folder / "acme_one_more.py"
    other.write_text("")
    of_metadata = [str(path.relative_to(site.folder)) for path in info.iterdir()]
    write_record(site.folder, info, module.name, other.name, *of_metadata)
    (info / "INSTALLER").write_text("pip\n")
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///srv/acme_one-1.0-py3-none-any.whl"}))

    def result() -> dict[str, Any]:
        done = hami_command("verify-plugins", "--json", site=site.folder)
        return next(each for each in json.loads(done.stdout) if each["distribution"] == "acme-one")

    assert (result()["problem"], result()["files"]) == ("", 2 + len(of_metadata))
    shown = hami_command("verify-plugins", site=site.folder).stdout
    assert "as installed by pip from file:///srv/acme_one-1.0-py3-none-any.whl" in shown
    module.write_text(module.read_text() + "# changed\n")
    other.unlink()
    damaged = result()
    assert (damaged["missing"], damaged["changed"]) == ([other.name], [module.name])
    assert damaged["problem"].startswith(f"missing {other}, changed {module}: pip install --upgrade --no-deps --target")
    assert hami_command("verify-plugins", site=site.folder).returncode == 1
    (info / "RECORD").unlink()
    assert "its RECORD has no hashes, so nothing can be verified: pip install" in result()["problem"]
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    assert result()["problem"].startswith("it is an editable installation")


def _package(site: Site) -> tuple[Path, Path]:
    """Install acme-one with a package, every file of it with its hash; return the package and the metadata."""
    info = write_plugin(site.folder, "acme-one", "1.0", "AcmeOne")
    package = site.folder / "acme_one"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1\n")
    files = [path for path in site.folder.rglob("*") if path.is_file() and path.suffix == ".py"]
    named = [str(path.relative_to(site.folder)) for path in (*files, *info.iterdir())]
    write_record(site.folder, info, *named)
    return package, info


def _verified(hami_command: Any, site: Site) -> dict[str, Any]:
    done = hami_command("verify-plugins", "--json", site=site.folder)
    return next(each for each in json.loads(done.stdout) if each["distribution"] == "acme-one")


def test_verify_names_a_file_that_nobody_installed(hami_command: Any, site: Site) -> None:
    package, info = _package(site)
    py_compile.compile(str(package / "__init__.py"))
    assert _verified(hami_command, site)["problem"] == ""
    (package / "extra.py").write_text("")
    (info / "entry_points.txt").touch()
    found = _verified(hami_command, site)
    assert found["unlisted"] == ["acme_one/extra.py"]
    assert found["problem"].startswith(f"not listed with a hash {package / 'extra.py'}: remove it, and pip install")


def test_verify_names_a_file_whose_hash_was_removed(hami_command: Any, site: Site) -> None:
    package, info = _package(site)
    record = (info / "RECORD").read_text().splitlines()
    (info / "RECORD").write_text(
        "".join(f"{line.split(',')[0]},,\n" if "__init__" in line else f"{line}\n" for line in record)
    )
    (package / "__init__.py").write_text("VALUE = 2\n")
    assert _verified(hami_command, site)["unlisted"] == ["acme_one/__init__.py"]


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH]
)
def test_verify_names_compiled_python_that_its_source_does_not_have(
    hami_command: Any, site: Site, mode: py_compile.PycInvalidationMode
) -> None:
    package, _ = _package(site)
    source = package / "__init__.py"
    times = source.stat()
    compiled = py_compile.compile(str(source), invalidation_mode=mode)
    assert compiled
    assert _verified(hami_command, site)["problem"] == ""
    source.write_text("VALUE = 9\n")  # as long as the original
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(source), invalidation_mode=mode)
    source.write_text("VALUE = 1\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = _verified(hami_command, site)
    assert found["changed"] == [os.path.relpath(compiled, site.folder)]


def test_verify_survives_compiled_python_that_is_damaged(hami_command: Any, site: Site) -> None:
    package, _ = _package(site)
    compiled = py_compile.compile(str(package / "__init__.py"))
    assert compiled
    Path(compiled).write_bytes(Path(compiled).read_bytes()[:20])
    assert _verified(hami_command, site)["changed"] == [os.path.relpath(compiled, site.folder)]
