"""`hami-build check` grades a wheel; a wheel that is wrong in one way fails the check for it, with the remedy."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ENTRY, ENTRY_POINTS, METADATA, PLATFORM, Compile, Make
from packaging.tags import platform_tags

from hami_build import archive, binary, grades, tools
from hami_build.commands import main
from hami_build.errors import Failure

Find = Callable[..., grades.Finding]


def native(make: Make, binary: bytes, name: str = "acme_inc/acme.so", tag: str = PLATFORM) -> Path:
    return make(tag, {name: binary})


def test_a_complete_plugin_is_gold(make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for tool in ("auditwheel", "check_wheel_contents", "cyclonedx", "twine"):
        pytest.importorskip(tool)
    wheel = make()
    assert main(["check", str(wheel), "--require", "gold", "--badge", str(tmp_path / "badge.svg")]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{wheel.name}: gold\n")
    assert "FAILED" not in output
    assert "hami plugin: gold" in (tmp_path / "badge.svg").read_text()


def test_a_grade_below_the_required_one_is_status_1(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make(files={"acme_inc/quality.toml": None})
    assert main(["check", str(wheel), "--require", "silver", "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["grade"] in ("none", "bronze")  # none: without the tools of hami-build[check]
    (found,) = [each for each in report["findings"] if each["check"] == "conformance"]
    assert found["state"] == "failed"
    assert found["detail"] == "no sample for AcmeInc; add [samples.AcmeInc] to acme_inc/quality.toml"


@pytest.mark.parametrize(
    ("failed", "grade"), [([], "gold"), (["gold"], "silver"), (["silver"], "bronze"), (["bronze", "gold"], "none")]
)
def test_a_grade_needs_all_checks_below_it(failed: list[str], grade: str) -> None:
    states = {level: "failed" if level in failed else "passed" for level in ("bronze", "silver", "gold")}
    assert grades.grade_of([grades.Finding(level, "x", state, "") for level, state in states.items()]) == grade


def test_an_exemption_shows_its_reason(make: Make, finding: Find) -> None:
    text = "[exempt]\nconformance = 'needs a GPU'\n"
    found = finding(make(files={"acme_inc/quality.toml": text}), "conformance")
    assert (found.state, found.detail.partition(" (")[0]) == ("exempt", "needs a GPU")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[exempt]\nspeed = 'x'\n", 'exempt has no check "speed"'),
        ("[exempt]\nlinks = ''\n", 'exempt."links" must be the reason, as text'),
        ("[samples]\nAcmeInc = 1\n", "samples.AcmeInc must be a table with params and request"),
        ("[sample]\n", 'has "sample"; expected the tables samples and exempt'),
        ("[", "is not valid TOML"),
        (f"x = {'[' * 50_000}", "is not valid TOML"),
        ("samples = 3\n", "samples must be a table, got 3"),
        ("exempt = [1]\n", "exempt must be a table, got [1]"),
        ("[samples.AcmeInc]\nrequest = 4\n", "samples.AcmeInc.request must be a table, got 4"),
    ],
)
def test_a_wrong_quality_file_is_an_error(
    make: Make, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert main(["check", str(make(files={"acme_inc/quality.toml": text}))]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: acme_inc-1.0-py3-none-any.whl: ")
    assert message in error


def test_a_truncated_wheel_has_no_grade(make: Make) -> None:
    wheel = make()
    wheel.write_bytes(wheel.read_bytes()[:-40])
    report = grades.grade(wheel)
    assert (report.grade, len(report.findings)) == ("none", 1)
    assert report.findings[0].detail.endswith("build or download the wheel again")


def test_a_wheel_that_names_another_plugin_inside_has_no_grade(make: Make) -> None:
    found = grades.grade(make(info={"METADATA": METADATA.replace("Name: acme-inc", "Name: hami-onnx")}))
    assert found.grade == "none"
    assert found.findings[0].detail.startswith("its metadata say Name: 'hami-onnx', its file name says acme-inc; ")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("entry_points.txt", b"[hami.backends]\nX\xe9 = x:X\n", "entry_points.txt cannot be read: "),
        ("entry_points.txt", b"[hami.backends]\nX\n", "entry_points.txt cannot be read: "),
        ("WHEEL", b"Tag: \xe9", "WHEEL cannot be read: "),
        ("METADATA", METADATA.encode() + b"Summary: \xe9\n", "cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_read_has_no_grade(make: Make, name: str, content: bytes, expected: str) -> None:
    found = grades.grade(make(info={name: content}))
    assert found.grade == "none"
    assert expected in found.findings[0].detail


def test_entry_points_are_those_that_python_finds() -> None:
    """Each line is one, also if it is indented, repeats a name or has a percent sign."""
    text = b"[hami.backends]\n  X = a:X\n    Y = b:Y\n[hami.backends]\nZ = %(c)s:Z\nX = d:X\n"
    files = {"a-1.dist-info/WHEEL": b"", "a-1.dist-info/entry_points.txt": text}
    assert archive.entry_points(files) == {"hami.backends": {"X": "d:X", "Y": "b:Y", "Z": "%(c)s:Z"}}


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"gone\.whl is not a file; give the path of a wheel"):
        grades.grade(tmp_path / "gone.whl")


def test_a_missing_tool_is_named(make: Make, finding: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    found = finding(make(), "metadata")
    assert (found.state, found.detail) == ("failed", "twine is not installed; pip install 'hami-build[check]'")


# ---- binaries ----


def test_a_right_binary_passes(make: Make, finding: Find, compiled: Compile) -> None:
    wheel = native(make, compiled(ENTRY))
    for name in ("binaries", "vendor libraries", "links", "exports", "no Python ABI"):
        assert finding(wheel, name).state == "passed", name


def test_a_grafted_libcuda_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    grafted = "acme_inc.libs/libcuda-0a1b2c3d.so.1"
    found = finding(make(PLATFORM, {"acme_inc/acme.so": compiled(ENTRY), grafted: compiled(ENTRY)}), "vendor libraries")
    assert found.state == "failed"
    assert found.detail == (f"contains {grafted}; require the package of the engine, and load its library with dlopen")


def test_a_linked_engine_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    compiled("int run(void) { return 0; }\n", "-Wl,-soname,libnvinfer.so.10", name="libnvinfer.so")
    binary = compiled(f"int run(void);\n{ENTRY.replace('return 0', 'return run()')}", "-lnvinfer")
    found = finding(native(make, binary), "links")
    assert (found.state, found.detail) == (
        "failed",
        "acme_inc/acme.so links libnvinfer.so.10; load it with dlopen when a backend is created",
    )


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("ld-linux-x86-64.so.2", "ld-linux-x86-64"),
        ("ld-linux-aarch64.so.1", "ld-linux-aarch64"),
        ("libc.so.6", "libc"),
        ("acme.libs/libcuda-0a1b2c3d.so.1", "libcuda"),
    ],
)
def test_the_name_of_a_library_has_no_version(library: str, name: str) -> None:
    assert binary.stem(library) == name


def test_a_symbol_that_no_known_library_has_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    text = f"int newer_than_the_platform(void);\n{ENTRY.replace('return 0', 'return newer_than_the_platform()')}"
    found = finding(native(make, compiled(text)), "links")
    assert found.state == "failed"
    assert found.detail.startswith("acme_inc/acme.so needs newer_than_the_platform, which no library of its platform")


def test_a_library_without_the_entry_of_a_plugin_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    found = finding(native(make, compiled("int other(void) { return 0; }\n")), "plugin ABI")
    assert (found.state, found.detail) == (
        "failed",
        "no library exports hami_plugin_v1; add HAMI_PLUGIN to one source file",
    )


def test_a_second_export_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    found = finding(native(make, compiled(f"{ENTRY}int acme_leak(void) {{ return 0; }}\n")), "exports")
    assert "acme_inc/acme.so exports acme_leak; build it with hami_add_plugin" in found.detail


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_binary_is_found(make: Make, finding: Find, compiled: Compile, kept: float) -> None:
    binary = compiled(ENTRY)
    found = finding(native(make, binary[: int(len(binary) * kept)]), "binaries")
    assert found.state == "failed"
    assert found.detail.startswith("acme_inc/acme.so is damaged: ")
    assert found.detail.endswith("; build the wheel again")


def test_a_binary_of_another_architecture_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    other, number = ("aarch64", 183) if platform.machine() == "x86_64" else ("x86_64", 62)
    binary = bytearray(compiled(ENTRY))
    binary[18:20] = number.to_bytes(2, "little")  # e_machine
    found = finding(native(make, bytes(binary)), "binaries")
    assert f"acme_inc/acme.so is for {other}, the wheel for {PLATFORM}; build it for that platform" == found.detail


def test_a_binary_in_a_pure_wheel_is_found(make: Make, finding: Find, compiled: Compile) -> None:
    assert "is in a wheel for any platform" in finding(native(make, compiled(ENTRY), tag="any"), "binaries").detail


def test_wrong_platform_tags_are_found(
    make: Make, finding: Find, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = PLATFORM.replace("2_17", "2_35")
    monkeypatch.setattr(tools, "auditwheel", lambda wheel: newer)
    found = finding(native(make, compiled(ENTRY)), "platform tags")
    assert found.detail == f"the symbols need {newer}, the tag promises {PLATFORM}; build it with hami-build wheel"


# ---- entry points and the code ----


def test_a_promise_that_the_plugin_does_not_keep_is_found(make: Make, finding: Find) -> None:
    lie = f"{ENTRY_POINTS}AcmeDec = acme_inc.plugin\n"
    found = finding(make(info={"entry_points.txt": lie}), "registration")
    assert found.state == "failed"
    assert "AcmeDec" in found.detail


def test_an_entry_point_to_nothing_is_found(make: Make, finding: Find) -> None:
    found = finding(make(info={"entry_points.txt": "[hami]\ninc = acme_inc.gone\n"}), "entry points")
    assert found.detail == "acme_inc.gone is not in the wheel; correct the entry points in pyproject.toml"


def test_names_that_differ_only_in_case_are_found(make: Make, finding: Find) -> None:
    text = f"{ENTRY_POINTS}Acme_inc = acme_inc.plugin\n"
    found = finding(make(info={"entry_points.txt": text}), "names")
    assert found.detail == "AcmeInc, Acme_inc differ only in case or _; rename all but one"


def test_a_name_of_another_plugin_is_found(make: Make, finding: Find) -> None:
    found = finding(make(info={"entry_points.txt": f"{ENTRY_POINTS}Onnx_Tensor = acme_inc.plugin\n"}), "names")
    assert found.detail == "Onnx_Tensor is the name of a backend of hami-onnx but for case and _; rename it"


def test_a_heavy_import_at_discovery_is_found(make: Make, finding: Find) -> None:
    files = {"acme_inc/plugin.py": "import pip\n"}
    pytest.importorskip("pip")
    found = finding(make(files=files), "discovery")
    assert found.detail == "its entry points import pip; import them in a backend, when it is created"


def test_a_backend_that_breaks_the_rules_is_found(make: Make, finding: Find) -> None:
    text = "import hami\n\nclass AcmeInc(hami.Backend):\n    def forward(self, batch):\n        raise OSError('gone')\n"
    found = finding(make(files={"acme_inc/backend.py": text}), "conformance")
    assert found.state == "failed"
    assert "has a docstring" in found.detail


def test_a_crash_of_the_plugin_is_a_finding(make: Make, finding: Find) -> None:
    found = finding(make(files={"acme_inc/plugin.py": "import os\nos.kill(os.getpid(), 9)\n"}), "discovery")
    assert found.detail == "its code ended the process with signal 9"


@pytest.mark.parametrize("line", ["hami-core==2.0", "hami-core>=2.0,<3", "hami-core"])
def test_a_requirement_that_excludes_later_cores_is_found(make: Make, finding: Find, line: str) -> None:
    metadata = METADATA.replace("hami-core>=2.0", line)
    assert "write hami-core>=X without an upper bound" in finding(make(info={"METADATA": metadata}), "hami-core").detail


def test_the_code_of_another_architecture_does_not_run(make: Make, finding: Find) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    found = finding(make(f"manylinux_2_17_{other}"), "conformance")
    assert found.state == "skipped"
    assert found.detail.startswith(f"the wheel is for manylinux_2_17_{other}, this machine is ")


def test_the_code_for_another_c_library_does_not_run(make: Make, finding: Find, compiled: Compile) -> None:
    if any(tag.startswith("musllinux") for tag in platform_tags()):
        pytest.skip("this machine has musl")
    wheel = native(make, compiled(ENTRY), tag=f"musllinux_1_2_{platform.machine()}")
    assert finding(wheel, "conformance").state == "skipped"
    assert finding(wheel, "platform tags").state == "skipped"


# ---- what users read ----


@pytest.mark.parametrize(
    ("check", "removed", "text"),
    [
        ("changelog", "Project-URL: Changelog, https://example.com/changes\n", "add Changelog = "),
        ("documentation", "Project-URL: Documentation, https://example.com/docs\n", "add Documentation = "),
        ("documentation", "AcmeInc adds one.", "the README does not describe AcmeInc"),
        ("licence", "License-Expression: Apache-2.0\n", "add the file LICENSE"),
    ],
)
def test_missing_information_is_found(make: Make, finding: Find, check: str, removed: str, text: str) -> None:
    assert text in finding(make(info={"METADATA": METADATA.replace(removed, "")}), check).detail


def test_the_index_lists_the_wheels(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make()
    assert main(["index", str(wheel.parent), "--to", str(tmp_path / "index")]) == 0
    assert wheel.name in capsys.readouterr().out
    assert wheel.name in (tmp_path / "index" / "simple" / "acme-inc" / "index.html").read_text()


def test_index_and_catalog_print_json(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make()
    assert main(["index", str(wheel.parent), "--to", str(tmp_path / "index"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [archive["file"] for archive in found["archives"]] == [wheel.name]
    assert found["index"] == (tmp_path / "index" / "simple").as_uri()
    assert main(["catalog", str(wheel.parent), "--to", str(tmp_path / "out"), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert sorted(files) == sorted(str(path) for path in (tmp_path / "out").iterdir())
    assert main(["index", str(tmp_path / "out"), "--to", str(tmp_path / "index"), "--json"]) == 1
    assert "contains no wheels" in json.loads(capsys.readouterr().out)["error"]


def test_an_index_of_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(tmp_path), "--to", str(tmp_path / "index")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path} contains no wheels; build them with hami-build wheel\n"
