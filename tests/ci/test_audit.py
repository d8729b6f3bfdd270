"""The audit of wheels: a right wheel passes, and a wheel that is wrong in one way fails the check for it."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from _lib import audit, zig

PLATFORM = ".".join(audit.TAGS)
METADATA = (
    "Metadata-Version: 2.4\nName: {name}\nVersion: 0.1.0\nSummary: x\nDescription-Content-Type: text/markdown\n\n# x\n"
)
MODULE = "int PyInit__core(void) { return 0; }\n"
PLUGIN = "int hami_plugin_v1(void) { return 0; }\n"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """compiled(text of C, target) -> a shared object as the wheels' compiler makes it; it may link another."""
    folder = tmp_path_factory.mktemp("objects")

    def compile_text(text: str, target: str = zig.TARGET, *, name: str = "module.so", link: str = "") -> bytes:
        source, built = folder / "module.c", folder / name
        source.write_text(text)
        command = [zig.program(), "cc", "-target", target, "-O2", "-fPIC", "-shared", "-s", source, "-o", built]
        command += [f"-Wl,-soname,{name}", *([folder / link] if link else [])]
        subprocess.run(command, env=zig.build_environment(**zig.cache_for(target)), check=True)
        return built.read_bytes()

    return compile_text


def write_wheel(folder: Path, name: str, tag: str, files: dict[str, bytes], metadata: str = METADATA) -> Path:
    """A wheel with these files and with metadata as they should be."""
    info = f"{name}-0.1.0.dist-info"
    tags = "".join(f"Tag: {'-'.join(tag.split('-')[:2])}-{part}\n" for part in tag.split("-")[2].split("."))
    pure = "true" if tag.endswith("any") else "false"
    files = {
        **files,
        f"{info}/METADATA": metadata.format(name=name.replace("_", "-")).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\n{tags}".encode(),
    }
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items())
    wheel = folder / f"{name}-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(path, data)
    return wheel


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def failed(wheel: Path) -> dict[str, str]:
    """The checks that this wheel fails, and what they found."""
    return {finding.check: finding.detail for finding in audit.audit_all([wheel]) if not finding.passed}


def core(folder: Path, files: dict[str, bytes], tag: str = PLATFORM) -> Path:
    return write_wheel(folder, "hami_core", f"cp312-cp312-{tag}", files)


def test_right_wheel_of_the_core_passes(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    assert failed(core(tmp_path, {"hami/_core.so": compiled(MODULE)})) == {}


def test_second_exported_symbol_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    wheel = core(tmp_path, {"hami/_core.so": compiled(MODULE + "int hami_leak(void) { return 0; }\n")})
    assert failed(wheel) == {"exports": "PyInit__core, hami_leak"}


def test_symbol_that_glibc_2_17_lacks_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    text = "unsigned arc4random(void);\nint PyInit__core(void) { return (int)arc4random(); }\n"
    assert failed(core(tmp_path, {"hami/_core.so": compiled(text)})) == {"symbols of glibc 2.17": "arc4random"}


def test_binary_for_a_newer_glibc_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    text = "#include <dlfcn.h>\nint PyInit__core(void) { return dlclose(0); }\n"
    binary = compiled(text, zig.TARGET.replace(zig.GLIBC, "2.34"))
    assert failed(core(tmp_path, {"hami/_core.so": binary})) == {
        "auditwheel show": f"manylinux_2_34_{platform.machine()}",
        "symbols of glibc 2.17": "dlclose@GLIBC_2.34",
    }


def test_second_binary_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    wheel = core(tmp_path, {"hami/_core.so": compiled(MODULE), "hami/_other.so": compiled(MODULE)})
    assert failed(wheel) == {"one binary": "_core.so, _other.so"}


def test_missing_platform_tag_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    tag = audit.TAGS[-1]
    assert failed(core(tmp_path, {"hami/_core.so": compiled(MODULE)}, tag)) == {"platform": tag}


def test_wheel_over_the_size_limit_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    wheel = core(tmp_path, {"hami/_core.so": compiled(MODULE), "hami/data.bin": os.urandom(audit.CORE_LIMIT)})
    assert failed(wheel) == {"size": f"{wheel.stat().st_size} bytes, limit {audit.CORE_LIMIT}"}


def test_right_wheel_of_a_plugin_passes(tmp_path: Path) -> None:
    assert failed(write_wheel(tmp_path, "hami_x", "py3-none-any", {"hami_x/__init__.py": b""})) == {}


def test_plugin_bound_to_one_python_is_found(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "hami_x", "cp312-cp312-any", {"hami_x/__init__.py": b""})
    assert failed(wheel) == {"tags": "cp312-cp312-any"}


def test_plugin_with_files_in_the_folder_of_the_core_is_found(tmp_path: Path) -> None:
    files = {"hami_x/__init__.py": b"", "hami/x.py": b""}
    assert failed(write_wheel(tmp_path, "hami_x", "py3-none-any", files)) == {"top-level names": "hami, hami_x"}


def native(folder: Path, files: dict[str, bytes]) -> Path:
    return write_wheel(folder, "hami_x", f"py3-none-{PLATFORM}", files)


def test_right_wheel_of_a_native_plugin_passes(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    assert failed(native(tmp_path, {"hami_x/x.so": compiled(PLUGIN)})) == {}


def test_native_plugin_that_shows_more_than_its_entry_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    wheel = native(tmp_path, {"hami_x/x.so": compiled(PLUGIN + "int helper(void) { return 0; }\n")})
    assert failed(wheel) == {"exports": "hami_plugin_v1, helper"}


def test_native_plugin_that_links_another_library_is_found(tmp_path: Path, compiled: Callable[..., bytes]) -> None:
    compiled("int run(void) { return 0; }\n", name="libengine.so")
    binary = compiled("int run(void);\nint hami_plugin_v1(void) { return run(); }\n", link="libengine.so")
    found = failed(native(tmp_path, {"hami_x/x.so": binary}))
    assert found["links"] == "libengine.so"


def test_metadata_that_an_index_refuses_is_found(tmp_path: Path) -> None:
    metadata = METADATA.replace("text/markdown", "text/nonsense")
    wheel = write_wheel(tmp_path, "hami_x", "py3-none-any", {"hami_x/__init__.py": b""}, metadata)
    assert list(failed(wheel)) == ["twine check --strict"]
