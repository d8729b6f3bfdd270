"""`hami-build check --core` runs a plugin with other versions of hami-core."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import hami
import pytest
from conftest import METADATA, Make
from packaging.specifiers import SpecifierSet

from hami_build import cores, grades, index
from hami_build.commands import main
from hami_build.errors import Failure

Find = Callable[..., grades.Finding]
Core = Callable[..., Path]


@pytest.fixture
def core(tmp_path: Path) -> Core:
    """core(version, text of hami/__init__.py) -> a wheel of hami-core; by default with the installed files."""

    def write(number: str, text: str | None = None) -> Path:
        folder = tmp_path / "cores"
        folder.mkdir(exist_ok=True)
        wheel, package = folder / f"hami_core-{number}-py3-none-any.whl", Path(hami.__file__).parent
        with zipfile.ZipFile(wheel, "w") as archive:
            info = f"hami_core-{number}.dist-info"
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.4\nName: hami-core\nVersion: {number}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
            if text is not None:
                archive.writestr("hami/__init__.py", text)
            else:
                for file in package.rglob("*"):
                    if file.is_file() and file.suffix != ".pyc":
                        archive.write(file, f"hami/{file.relative_to(package)}")
        return wheel

    return write


def test_a_plugin_runs_with_the_oldest_and_the_newest_suitable_core(make: Make, finding: Find, core: Core) -> None:
    for number, text in {"1.9": "raise OSError", "2.0": None, "2.1": "raise OSError", "3.0": None}.items():
        folder = core(number, text).parent
    found = finding(make(), "hami-core versions", [str(folder)])
    assert (found.state, found.detail) == ("passed", "runs with 2.0, 3.0")


def test_a_core_that_cannot_run_the_plugin_is_named(make: Make, finding: Find, core: Core) -> None:
    found = finding(make(), "hami-core versions", [str(core("2.0", "raise ImportError('gone')"))])
    assert found.state == "failed"
    assert found.detail.startswith("with hami-core 2.0: ImportError: gone")


def test_without_other_cores_the_check_is_skipped(make: Make, finding: Find) -> None:
    assert finding(make(), "hami-core versions").state == "skipped"


def test_only_suitable_cores_count(make: Make, finding: Find, core: Core) -> None:
    wheel = make(info={"METADATA": METADATA.replace("hami-core>=2.0", "hami-core>=9")})
    found = finding(wheel, "hami-core versions", [str(core("2.0", ""))])
    assert found.detail == "none of the given cores is hami-core>=9; correct the requirement, or give others"


def test_an_index_gives_its_oldest_and_newest_suitable_core(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    for number in ("1.0", "2.0", "2.5", "2.10"):
        folder = core(number, "").parent
    index.write(index.archives_in(folder), tmp_path / "index")
    address = (tmp_path / "index" / index.SIMPLE).as_uri()
    (tmp_path / "work").mkdir()
    found = cores.find([address], SpecifierSet(">=2.0"), tmp_path / "work")
    assert [str(each.version) for each in found] == ["2.0", "2.10"]
    assert all((each.folder / "hami" / "__init__.py").is_file() for each in found)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", '"{place}" is neither a wheel, a folder nor the address of a package index'),
        ("hami_core-2.0-cp27-cp27m-win32.whl", "{place} is not a wheel of hami-core for Python "),
        ("acme_inc-2.0-py3-none-any.whl", "{place} is not a wheel of hami-core for Python "),
        ("hami_core-2.0-py3-none-any.whl", "{place} is damaged: "),
        ("", "{place} has no hami-core>=2.0 for Python "),
    ],
)
def test_a_place_without_a_core_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if name.endswith(".whl"):
        (place / name).write_text("no archive")
    given = place / name if name else place
    with pytest.raises(Failure) as raised:
        cores.find([str(given)], SpecifierSet(">=2.0"), tmp_path)
    assert str(raised.value).startswith(message.format(place=given))


def test_the_matrix_has_a_column_for_each_core(
    make: Make, core: Core, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make(info={"METADATA": METADATA.replace("hami-core>=2.0", "hami-core>=2.0.dev0")})
    broken, old = core("9.1", "raise ImportError('gone')"), core("1.0", "")
    assert main(["matrix", str(wheel), "--core", str(broken), "--core", str(old)]) == 1
    output = capsys.readouterr()
    heads, _, row = output.out.splitlines()
    installed = version("hami-core")
    assert heads == f"| plugin | version | plugin ABI | hami-core 1.0 | hami-core {installed} | hami-core 9.1 |"
    assert row.startswith(
        "| `acme-inc` | 1.0 | - | -: requires hami-core>=2.0.dev0 | ok: 1 backend, 1 checked | Import"
    )
    assert output.err.startswith("error: acme-inc 1.0 with hami-core 9.1: ImportError: gone")


def test_the_matrix_as_json_has_the_same_results(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", str(make()), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "plugin": "acme-inc",
        "version": "1.0",
        "abi": "-",
        "results": {version("hami-core"): "ok: 1 backend, 1 checked"},
    }
