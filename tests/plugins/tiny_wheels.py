"""Small wheels for tests: plugins with any version and tag, and copies of our wheels with another version."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

MODULE = '''
import pluggy

import hami


class {backend}(hami.Backend):
    """Returns the name and version of its plugin."""

    def forward(self, batch):
        for item in batch:
            item["result"] = "{name} {version}"


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("{backend}", f"{{__name__}}:{backend}")
'''


def write(folder: Path, name: str, version: str, tag: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel from `files`, which contain everything except the RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    record = f"{name}-{version}.dist-info/RECORD"
    lines = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items()]
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def plugin(
    folder: Path,
    name: str,
    version: str = "1.0.0",
    *,
    requires: str = "hami-core>=0.0.1",
    tag: str = "py3-none-any",
    package: str = "",
    script: bool = False,
) -> Path:
    """Write a plugin with one backend that returns name and version of the plugin."""
    package, backend = package or name.replace("-", "_"), name.title().replace("-", "")
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    entry_points = f"[hami.backends]\n{backend} = {package}.plugin\n[hami]\n{name} = {package}.plugin\n"
    if script:
        entry_points += f"[console_scripts]\n{name} = {package}.plugin:main\n"
    files = {
        f"{package}/__init__.py": b"",
        f"{package}/plugin.py": MODULE.format(backend=backend, name=name, version=version).encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Requires-Python: >=3.10\nRequires-Dist: {requires}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": entry_points.encode(),
    }
    return write(folder, name.replace("-", "_"), version, tag, files)


def empty(folder: Path, name: str, version: str) -> Path:
    """Write an empty wheel that replaces a large one."""
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return write(folder, package, version, "py3-none-any", files)


def revised(wheel: Path, version: str, folder: Path) -> Path:
    """Write a copy of a wheel with another version, also in its binary; both versions must have the same length."""
    name, old, tag = wheel.stem.split("-", 2)
    assert len(old) == len(version)
    with zipfile.ZipFile(wheel) as archive:
        kept = (path for path in archive.namelist() if not path.endswith(("/", ".dist-info/RECORD")))
        files = {path: archive.read(path) for path in kept}
    changed = {}
    for path, data in files.items():
        if path.endswith((".so", ".dist-info/METADATA")):
            assert old.encode() in data
            data = data.replace(old.encode(), version.encode())
        changed[path.replace(f"{name}-{old}.dist-info", f"{name}-{version}.dist-info")] = data
    return write(folder, name, version, tag, changed)
