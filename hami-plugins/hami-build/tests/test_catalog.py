"""`hami-build catalog` describes plugins from their wheels, for hami-core and for readers."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import pytest
from conftest import METADATA, Make

from hami_build import catalog
from hami_build.commands import main
from hami_build.errors import Failure


def test_the_catalogue_has_what_the_wheel_registers(make: Make, tmp_path: Path) -> None:
    wheel = make()
    assert main(["catalog", str(wheel.parent), "--to", str(tmp_path / "out"), "--grade"]) == 0
    (plugin,) = json.loads((tmp_path / "out" / catalog.JSON).read_text())["plugins"]
    assert plugin["backends"] == {"AcmeInc": {"summary": "Adds one.", "params": []}}
    assert (plugin["name"], plugin["version"], plugin["platforms"]) == ("acme-inc", "1.0", ["any"])
    assert plugin["grade"] in ("none", "gold")  # none: without the tools of hami-build[check]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert plugin["releases"] == [{"version": "1.0", "files": [{"name": wheel.name, "sha256": digest}]}]
    page = (tmp_path / "out" / catalog.PAGE).read_text()
    assert "<td>AcmeInc</td><td>Adds one.</td>" in page
    assert "hami install acme-inc" in page


def test_provenance_beside_a_wheel_is_part_of_the_catalogue(make: Make, tmp_path: Path) -> None:
    wheel = make()
    beside = wheel.with_name(f"{wheel.name}.provenance")
    beside.write_text('{"version": 1}')
    assert main(["catalog", str(wheel.parent), "--to", str(tmp_path / "out")]) == 0
    (plugin,) = json.loads((tmp_path / "out" / catalog.JSON).read_text())["plugins"]
    assert plugin["releases"][0]["files"][0]["provenance"] == beside.name
    assert (tmp_path / "out" / beside.name).read_text() == '{"version": 1}'


def test_a_wheel_of_another_architecture_is_listed_without_its_code(make: Make) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    found = catalog.collect([make(f"manylinux_2_17_{other}")])
    assert found["plugins"][0]["backends"] == {"AcmeInc": {}}


def test_the_page_escapes_what_a_plugin_says(make: Make) -> None:
    metadata = METADATA.replace("Summary: x", "Summary: <script>alert(1)</script>")
    page = catalog.page(catalog.collect([make(info={"METADATA": metadata})]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_wheel_cannot_take_the_place_of_another_plugin(make: Make) -> None:
    with pytest.raises(Failure, match="its metadata say Name: 'hami-onnx', its file name says acme-inc"):
        catalog.collect([make(info={"METADATA": METADATA.replace("Name: acme-inc", "Name: hami-onnx")})])


@pytest.mark.parametrize(
    ("name", "text"),
    [("acme.whl", "build or download it again"), ("acme_x-1-py3-none-any.whl", "is not a complete wheel")],
)
def test_a_file_that_is_not_a_wheel_is_an_error(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("hello")
    assert main(["catalog", str(tmp_path), "--to", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / name}")
    assert text in error
    assert not (tmp_path / "out").exists()
