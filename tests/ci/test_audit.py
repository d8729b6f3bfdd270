"""The audit: a right file passes, and a file that is wrong in one way fails the check for it."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest
from _lib import audit
from hami_build import interpreters, platforms, sbom, wheel_file, zig
from hami_build.interpreters import Interpreter

PLATFORM = ".".join(platforms.parse(f"manylinux2014_{zig.HOST}").tags)
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: 0.1.0
Summary: x
License-Expression: Apache-2.0
License-File: LICENSE
Description-Content-Type: text/markdown

# x
"""
# As in the core: a message that names its version.
VERSION = 'const char* version(void) { return "hami-core 0.1.0 serves 1.0"; }\n'
HIDDEN = '__attribute__((visibility("hidden"))) '
MODULE = f"{HIDDEN}{VERSION}const char* PyInit__core(void) {{ return version(); }}\n"
PLUGIN = "int hami_plugin_v1(void) { return 0; }\n"

Compile = Callable[..., bytes]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """compiled(text of C, target) -> a shared object as the wheels' compiler makes it; it may link another."""
    folder = tmp_path_factory.mktemp("objects")

    def compile_text(
        text: str, target: str = zig.TARGET, *, name: str = "module.so", link: str = "", cpu: str = "baseline"
    ) -> bytes:
        source, built = folder / "module.c", folder / name
        source.write_text(text)
        command = [zig.program(), "cc", "-target", target, "-O2", "-fPIC", "-shared", "-s", source, "-o", built]
        command += [f"-mcpu={cpu}", f"-Wl,-soname,{name}", *([folder / link] if link else [])]
        subprocess.run(command, env=zig.build_environment(target), check=True)
        return built.read_bytes()

    return compile_text


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelogs of the wheels made here."""
    for folder in (tmp_path, tmp_path / "hami-plugins" / "hami-x"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0, not released yet\n\nFirst version.\n")
    monkeypatch.setattr(audit, "ROOT", tmp_path)


def write_wheel(folder: Path, name: str, tag: str, files: dict[str, bytes], **changed: bytes | None) -> Path:
    """A wheel with these files and with metadata as they should be, but for what is `changed` in .dist-info."""
    info = f"{name}-0.1.0.dist-info"
    interpreter, platforms = tag.rsplit("-", 1)
    metadata = METADATA.format(name=name.replace("_", "-"))
    bill = sbom.document(Parser().parsestr(metadata), [sbom.cxx_library("20.1")])
    tags = "".join(f"Tag: {interpreter}-{platform}\n" for platform in platforms.split("."))
    pure = "true" if platforms == "any" else "false"
    own: dict[str, bytes | None] = {
        "METADATA": metadata.encode(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\n{tags}".encode(),
        "entry_points.txt": b"[hami]\nx = %s\n" % (b"hami.start:main" if name == "hami_core" else b"hami_x.plugin"),
        "licenses/LICENSE": b"Apache-2.0",
        "sboms/x.cdx.json": bill.encode(),
        **{key.replace("__", "."): data for key, data in changed.items()},
    }
    whole = {**files, **{f"{info}/{path}": data for path, data in own.items() if data is not None}}
    return wheel_file.write(whole, folder / f"{name}-0.1.0-{tag}.whl")


def core(folder: Path, binary: bytes, tag: str = PLATFORM, **changed: bytes | None) -> Path:
    files = {"hami/__init__.py": b"", "hami/start.py": b"def main(): ...\n", "hami/_core.so": binary}
    return write_wheel(folder, "hami_core", f"cp312-cp312-{tag}", files, **changed)


def plugin(folder: Path, files: dict[str, bytes] | None = None, tag: str = "any", **changed: bytes | None) -> Path:
    own = {"hami_x/__init__.py": b"", "hami_x/plugin.py": b"", **(files or {})}
    return write_wheel(folder, "hami_x", f"py3-none-{tag}", own, **changed)


def failed(file: Path) -> dict[str, str]:
    """The checks that this file fails, and what they found."""
    return {finding.check: finding.detail for finding in audit.findings([file]) if not finding.passed}


def test_right_wheel_of_the_core_passes(tmp_path: Path, compiled: Compile) -> None:
    assert failed(core(tmp_path, compiled(MODULE))) == {}


SUMS = (
    MODULE
    + """
__attribute__((visibility("hidden"))) double total;
__attribute__((visibility("hidden"))) void *sum_of(const double *x, int n, float *y) {
  for (int i = 0; i < n; i++) { total += x[i] * total; y[i] = y[i] / (float)total + y[i] * 3; }
  return &total;
}
"""
)


@pytest.mark.skipif(zig.HOST != "x86_64", reason="AVX is of x86-64")
@pytest.mark.parametrize(("cpu", "warned"), [("baseline", False), ("x86_64_v3", True)])
def test_code_that_needs_avx_is_a_warning(tmp_path: Path, compiled: Compile, cpu: str, warned: bool) -> None:
    found = {each.check: each for each in audit.findings([core(tmp_path, compiled(SUMS, cpu=cpu))])}["instructions"]
    assert found.passed
    assert str(found).startswith("warn  " if warned else "ok    ")
    assert ("_core.so needs AVX" in found.detail) == warned


def test_second_exported_symbol_is_found(tmp_path: Path, compiled: Compile) -> None:
    wheel = core(tmp_path, compiled(MODULE + "int hami_leak(void) { return 0; }\n"))
    assert failed(wheel) == {"exports": "PyInit__core, hami_leak"}


def test_symbol_that_glibc_2_17_lacks_is_found(tmp_path: Path, compiled: Compile) -> None:
    text = MODULE.replace("const char* PyInit", "unsigned arc4random(void);\nconst char* PyInit").replace(
        "{ return version(); }", "{ return arc4random() ? version() : 0; }"
    )
    assert failed(core(tmp_path, compiled(text))) == {"symbols of glibc 2.17": "arc4random"}


def test_binary_for_a_newer_glibc_is_found(tmp_path: Path, compiled: Compile) -> None:
    text = "#include <dlfcn.h>\n" + MODULE.replace("return version()", "return dlclose(0) ? version() : 0")
    assert failed(core(tmp_path, compiled(text, zig.target(glibc="2.34")))) == {
        "auditwheel show": f"manylinux_2_34_{zig.HOST}",
        "symbols of glibc 2.17": "dlclose@GLIBC_2.34",
    }


def test_second_binary_is_found(tmp_path: Path, compiled: Compile) -> None:
    files = {"hami/__init__.py": b"", "hami/start.py": b"main = print\n"}
    files |= {"hami/_core.so": compiled(MODULE), "hami/_other.so": compiled(MODULE)}
    wheel = write_wheel(tmp_path, "hami_core", f"cp312-cp312-{PLATFORM}", files)
    assert failed(wheel) == {"one binary": "hami/_core.so, hami/_other.so"}


def test_missing_platform_tag_is_found(tmp_path: Path, compiled: Compile) -> None:
    tag = platforms.parse(f"manylinux2014_{zig.HOST}").tags[-1]
    assert failed(core(tmp_path, compiled(MODULE), tag)) == {"platform": tag}


def test_renamed_wheel_is_found(tmp_path: Path, compiled: Compile) -> None:
    wheel = core(tmp_path, compiled(MODULE))
    renamed = wheel.rename(tmp_path / wheel.name.replace("cp312-cp312", "cp313-cp313"))
    assert list(failed(renamed)) == ["file name"]


def test_wheel_over_the_size_limits_is_found(
    tmp_path: Path, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = core(tmp_path, compiled(MODULE) + os.urandom(20_000))
    monkeypatch.setattr(audit, "CORE_SIZES", {"size": 20_000, "size when installed": 21_000})
    installed = sum(map(len, wheel_file.read(wheel).values()))
    assert failed(wheel) == {
        "size": f"{wheel.stat().st_size} bytes, limit 20000",
        "size when installed": f"{installed} bytes, limit 21000",
    }


def test_limits_are_those_promised() -> None:
    assert audit.CORE_SIZES == {"size": 1_200_000, "size when installed": 4_000_000}


def test_binary_of_another_version_is_found(tmp_path: Path, compiled: Compile) -> None:
    wheel = core(tmp_path, compiled(MODULE.replace("0.1.0", "0.0.9")))
    assert failed(wheel) == {"version of the binary": "0.0.9"}


def test_version_without_a_changelog_is_found(tmp_path: Path) -> None:
    (tmp_path / "hami-plugins" / "hami-x" / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.9, 2026-01-01\n")
    assert failed(plugin(tmp_path)) == {"version": "file name 0.1.0, metadata 0.1.0, changelog 0.0.9"}


def test_right_wheel_of_a_plugin_passes(tmp_path: Path) -> None:
    assert failed(plugin(tmp_path)) == {}


def test_plugin_bound_to_one_python_is_found(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "hami_x", "cp312-cp312-any", wheel_file.read(plugin(tmp_path)))
    assert failed(wheel)["interpreter"] == "cp312-cp312"


def test_plugin_with_files_in_the_folder_of_another_is_found(tmp_path: Path) -> None:
    found = failed(plugin(tmp_path, {"hami/x.py": b""}))
    assert found["top-level names"] == "hami, hami_x"
    assert set(found) == {"top-level names", "check-wheel-contents"}  # which sees it as well


def test_binary_in_a_pure_wheel_is_found(tmp_path: Path, compiled: Compile) -> None:
    assert failed(plugin(tmp_path, {"hami_x/x.so": compiled(PLUGIN)})) == {"pure Python": "hami_x/x.so"}


def test_right_wheel_of_a_native_plugin_passes(tmp_path: Path, compiled: Compile) -> None:
    assert failed(plugin(tmp_path, {"hami_x/x.so": compiled(PLUGIN)}, PLATFORM)) == {}


def test_native_plugin_that_shows_more_than_its_entry_is_found(tmp_path: Path, compiled: Compile) -> None:
    binary = compiled(PLUGIN + "int helper(void) { return 0; }\n")
    assert failed(plugin(tmp_path, {"hami_x/x.so": binary}, PLATFORM)) == {"exports": "hami_plugin_v1, helper"}


def test_native_plugin_that_links_another_library_is_found(tmp_path: Path, compiled: Compile) -> None:
    compiled("int run(void) { return 0; }\n", name="libengine.so")
    binary = compiled("int run(void);\nint hami_plugin_v1(void) { return run(); }\n", link="libengine.so")
    assert failed(plugin(tmp_path, {"hami_x/x.so": binary}, PLATFORM))["links"] == "libengine.so"


def test_native_plugin_compiled_for_one_python_is_found(tmp_path: Path, compiled: Compile) -> None:
    binary = compiled("int Py_IsInitialized(void);\nint hami_plugin_v1(void) { return Py_IsInitialized(); }\n")
    found = failed(plugin(tmp_path, {"hami_x/x.cpython-312-x86_64-linux-gnu.so": binary}, PLATFORM))
    assert found == {"no Python ABI": "hami_x/x.cpython-312-x86_64-linux-gnu.so, Py_IsInitialized"}


def test_metadata_that_an_index_refuses_is_found(tmp_path: Path) -> None:
    metadata = METADATA.format(name="hami-x").replace("text/markdown", "text/nonsense").encode()
    assert list(failed(plugin(tmp_path, METADATA=metadata))) == ["twine check --strict"]


def test_missing_licence_file_is_found(tmp_path: Path) -> None:
    assert failed(plugin(tmp_path, **{"licenses/LICENSE": None})) == {"licence": "missing: LICENSE"}


def test_missing_bill_of_materials_is_found(tmp_path: Path) -> None:
    wheel = plugin(tmp_path, **{"sboms/x.cdx.json": None})
    assert failed(wheel) == {"bill of materials": "0 files in hami_x-0.1.0.dist-info/sboms/, expected 1"}


def test_bill_of_materials_that_is_no_cyclonedx_is_found(tmp_path: Path) -> None:
    bill = b'{"bomFormat": "CycloneDX", "specVersion": "1.6", "x": 1}'
    found = failed(plugin(tmp_path, **{"sboms/x.cdx.json": bill}))
    assert found["bill of materials"].startswith("not valid CycloneDX: ")


def test_bill_of_materials_of_another_version_is_found(tmp_path: Path) -> None:
    bill = sbom.document(Parser().parsestr(METADATA.format(name="hami-x").replace("0.1.0", "0.0.9")), [])
    found = failed(plugin(tmp_path, **{"sboms/x.cdx.json": bill.encode()}))
    assert found == {"bill of materials": "hami-x 0.0.9; contains no third-party code"}


@pytest.mark.parametrize("target", ["hami_x.gone", "hami_x.plugin:gone"])
def test_entry_point_that_is_not_there_is_found(tmp_path: Path, target: str) -> None:
    wheel = plugin(tmp_path, entry_points__txt=f"[hami]\nx = {target}\n".encode())
    assert failed(wheel) == {"entry points": f"not in the wheel: {target}"}


def test_entry_point_that_cannot_be_imported_is_found(tmp_path: Path) -> None:
    wheel = plugin(tmp_path, {"hami_x/plugin.py": b"import hami_x.gone\n"})
    core_files = {"hami/__init__.py": b""}
    beside = write_wheel(tmp_path, "hami_core", "cp312-cp312-any", core_files)
    first = interpreters.find()[0][0]
    found = audit.imports(wheel, wheel_file.read(wheel), {beside: first})
    assert found == ("imports", False, f"{first.tag}: ModuleNotFoundError: No module named 'hami_x.gone'")


def test_entry_point_of_another_package_is_not_imported(tmp_path: Path) -> None:
    text = b"[hami]\nx = hami_x.plugin\n[acme.devices]\nx = hami_x.device:Device\n"
    files = {"hami_x/plugin.py": b"", "hami_x/device.py": b"import hami_x.gone\nclass Device: ...\n"}
    wheel = plugin(tmp_path, files, entry_points__txt=text)
    beside = write_wheel(tmp_path, "hami_core", "cp312-cp312-any", {"hami/__init__.py": b""})
    first = interpreters.find()[0][0]
    found = audit.imports(wheel, wheel_file.read(wheel), {beside: first})
    assert found == ("imports", True, first.tag)


@pytest.mark.parametrize("interpreter", interpreters.find()[0], ids=lambda found: found.tag)
def test_entry_point_that_one_python_cannot_import_is_found(tmp_path: Path, interpreter: Interpreter) -> None:
    text = f"import sys\nif sys.version_info[:2] == {interpreter.version[:2]}: raise ImportError('not on this one')\n"
    wheel = plugin(tmp_path, {"hami_x/plugin.py": text.encode()})
    core_files = {"hami/__init__.py": b""}
    cores = {
        write_wheel(tmp_path, "hami_core", f"{found.tag}-{found.tag}-any", core_files): found
        for found in interpreters.find()[0]
    }
    found = audit.imports(wheel, wheel_file.read(wheel), cores)
    assert found == ("imports", False, f"{interpreter.tag}: ImportError: not on this one")


def test_wheel_without_entry_points_is_found(tmp_path: Path) -> None:
    assert failed(plugin(tmp_path, entry_points__txt=None)) == {"entry points": "none"}


def test_wheel_for_other_plugins_needs_no_entry_points(tmp_path: Path) -> None:
    assert failed(write_wheel(tmp_path, "hami_x", "py3-none-any", {"hami_x/use.py": b""}, entry_points__txt=None)) == {}


def test_file_beside_the_package_is_found(tmp_path: Path) -> None:
    found = failed(plugin(tmp_path, {"hami_x/__pycache__/plugin.pyc": b""}))
    assert list(found) == ["check-wheel-contents"]
    assert found["check-wheel-contents"].startswith("W001: Wheel contains .pyc")


@pytest.mark.parametrize("kept", [0, 100, -30])
def test_half_a_wheel_is_found(tmp_path: Path, kept: int) -> None:
    wheel = plugin(tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:kept])
    (found,) = failed(wheel).items()
    assert found == ("archive", "cannot be read: File is not a zip file")


def test_wheel_with_a_damaged_file_is_found(tmp_path: Path) -> None:
    wheel = plugin(tmp_path, {"hami_x/big.py": b"# " + os.urandom(5000).hex().encode() + b"\n"})
    data = bytearray(wheel.read_bytes())
    data[2000:2004] = b"dead"
    wheel.write_bytes(data)
    (found,) = failed(wheel).items()
    assert found[0] == "archive"
    assert found[1].startswith("cannot be read: ")


def test_wheel_whose_files_are_not_those_of_its_record_is_found(tmp_path: Path) -> None:
    wheel = plugin(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("hami_x/late.py", b"")
    assert failed(wheel) == {"archive": "RECORD is wrong about hami_x/late.py"}


def test_wheel_without_metadata_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "hami_x-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hami_x/__init__.py", b"")
    info = "hami_x-0.1.0.dist-info"
    assert failed(wheel) == {"archive": f"missing: {info}/METADATA, {info}/WHEEL, {info}/RECORD"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hami_x.whl", "its name is not NAME-VERSION-PYTHON-ABI-PLATFORM.whl"),
        ("hami_x-0.1.0.zip", "its name is neither that of a wheel nor NAME-VERSION.tar.gz"),
        ("hami_x-0.1.0.tar.gz", "cannot be read: "),
    ],
)
def test_file_that_is_no_archive_is_found(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / name).write_text("hello")
    (found,) = failed(tmp_path / name).items()
    assert found[0] == "archive"
    assert found[1].startswith(told)


def sdist(folder: Path, *names: str) -> Path:
    archive = folder / "hami_x-0.1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as target:
        for name in names:
            (folder / "file").write_text(METADATA.format(name="hami-x"))
            target.add(folder / "file", f"hami_x-0.1.0/{name}")
    return archive


SDIST = ("pyproject.toml", "PKG-INFO", "LICENSE", "README.md", "CHANGELOG.md")


def test_right_sdist_passes(tmp_path: Path) -> None:
    assert failed(sdist(tmp_path, *SDIST)) == {}


def test_sdist_without_its_licence_is_found(tmp_path: Path) -> None:
    assert failed(sdist(tmp_path, *(name for name in SDIST if name != "LICENSE"))) == {"contents": "missing: LICENSE"}


def test_half_an_sdist_is_found(tmp_path: Path) -> None:
    archive = sdist(tmp_path, *SDIST)
    archive.write_bytes(archive.read_bytes()[:-60])
    (found,) = failed(archive).items()
    assert found[0] == "archive"
    assert found[1].startswith("cannot be read: ")


def test_sdist_of_another_version_is_found(tmp_path: Path) -> None:
    archive = sdist(tmp_path, *SDIST)
    renamed = archive.rename(tmp_path / "hami_x-0.2.0.tar.gz")
    assert failed(renamed) == {"version": "file name 0.2.0, changelog 0.1.0"}


def test_sdist_with_something_built_is_found(tmp_path: Path) -> None:
    assert failed(sdist(tmp_path, *SDIST, "python/x.so")) == {"sources only": "python/x.so"}
