"""The command `hami bundle`: writes a configuration, its models, packages and answers into one file."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hami
import hami.config
from hami import ConfigError, PluginError
from hami.cli import inputs_of, json_of, printable
from hami.packages import CORE

from hami_tools.bundle import contents, resolution, samples, sealing
from hami_tools.bundle.boot import layout
from hami_tools.bundle.boot.layout import Member
from hami_tools.bundle.resolution import Target, Wheel
from hami_tools.packages import installers, lock
from hami_tools.packages.installers import Sources, installed_version
from hami_tools.whole_file import written_whole

_BOOT = Path(layout.__file__).parent
_LICENSE = re.compile(r"[^/]+\.dist-info/(?:licenses?/.+|(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)", re.IGNORECASE)
_PART = 1 << 20
TOOLS = "hami-tools"


class _Entry(NamedTuple):
    """A member before it is written: its content, or the file with it."""

    member: Member
    parts: Callable[[], Iterable[bytes]]


def bundle(arguments: argparse.Namespace) -> int:
    """Write a bundle, and open it as its users do."""
    config, problems = hami.config.read_source(arguments.source)
    if problems := [*problems, *([] if problems else hami.config.check_all(config))]:
        raise ConfigError.of(problems)
    found = contents.Contents(arguments.source, config, arguments.include)
    key = sealing.secret("--encrypt") if arguments.encrypt else b""
    with tempfile.TemporaryDirectory(prefix="hami-bundle-") as work:
        targets = _targets(arguments, found, Path(work))
        facts, data = _data(arguments, config, found)
        entries = [*_boot(), *_encrypted(data, key), *_packages(targets), *_documents(arguments, targets, data)]
        if key:
            facts["key_id"] = sealing.identity(key)
        facts |= _about(arguments, found, targets)
        output = Path(arguments.output)
        with written_whole(arguments.output) as new:
            _write(new, facts, entries, arguments.sign)
            mode = new.stat().st_mode
            new.chmod(mode | (mode & 0o444) >> 2)  # readers get the permission to run it
            _try(str(new))
    _report(arguments, output, facts)
    return 0


# ---- packages ----


def _targets(arguments: argparse.Namespace, found: contents.Contents, work: Path) -> list[Target]:
    """Return the wheels for every chosen Python and platform; none with --no-packages."""
    if arguments.no_packages:
        return []
    pip = installers.find()
    if not isinstance(pip, installers.Pip):
        raise PluginError(
            f"uv does not download wheels; add pip to this environment: uv pip install --python {sys.executable} pip"
        )
    names = {CORE, TOOLS, *found.plugins, *contents.owners_of(arguments.source)}
    wanted = [f"{name}=={installed_version(name)}" for name in sorted(names)] + list(arguments.extra)
    wanted += ["cryptography"] if arguments.encrypt else []
    platforms = arguments.platform or [os.uname().machine]
    pythons = arguments.python_version or [".".join(map(str, sys.version_info[:2]))]
    for version in pythons:
        if not re.fullmatch(r"3\.\d{1,2}", version):
            raise ConfigError(f'--python-version takes a version such as 3.12, got "{printable(version)}"')
    sources = Sources(arguments.index, os.path.abspath(arguments.folder) if arguments.folder else "")
    targets = []
    for platform in platforms:
        for version in pythons:
            folder = work / f"{platform}-{version}"
            folder.mkdir()
            targets.append(resolution.resolve(pip, wanted, sources, folder, platform, version))
    return targets


def _packages(targets: Sequence[Target]) -> Iterator[_Entry]:
    for name, wheel in sorted(_wheels(targets).items()):
        yield _of_file(f"wheels/{name}", str(wheel.path))
    for target in targets:
        locked = [
            lock.Locked(each.name, each.version, f"../wheels/{each.path.name}", _sha256(each)) for each in target.wheels
        ]
        text = lock.render(locked, target.python, target.machine)
        yield _of_bytes(f"locks/pylock.{target.tag}-{target.machine}.toml", text.encode())


def _wheels(targets: Sequence[Target]) -> dict[str, Wheel]:
    found: dict[str, Wheel] = {}
    for wheel in (wheel for target in targets for wheel in target.wheels):
        first = found.setdefault(wheel.path.name, wheel)
        if _sha256(first) != _sha256(wheel):
            raise PluginError(f"the index has two different files {wheel.path.name}; choose one index: --index URL")
    return found


def _sha256(wheel: Wheel) -> str:
    return layout.member_of("", _parts_of(str(wheel.path))).sha256


# ---- configuration, models and samples ----


def _data(
    arguments: argparse.Namespace, config: hami.config.LoadedConfig, found: contents.Contents
) -> tuple[dict[str, Any], list[_Entry]]:
    """Return what the manifest says about the pipeline, and its files with the samples."""
    entries = [_of_bytes(contents.SOURCE, found.text.encode())]
    entries += [_of_file(name, path) for name, path in sorted(found.files.items())]
    requests: list[tuple[str, Any]] = []
    if arguments.node:
        raise ConfigError("--node is not for samples: those of a bundle start at the only first node of a graph")
    if arguments.text or arguments.data or arguments.inputs:
        requests = [(os.path.basename(each.label), each.request()["data"]) for each in inputs_of(arguments)]
    listed: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    if requests:
        with hami.pipe(config) as pipe:
            listed, files = samples.answered(pipe, requests)
    entries.append(_of_bytes(samples.LIST, samples.text_of(listed)))
    entries += [_of_bytes(name, content) for name, content in sorted(files.items())]
    facts: dict[str, Any] = {"source": contents.SOURCE, "samples": len(listed)}
    if arguments.tolerance is not None:
        facts["tolerance"] = arguments.tolerance
    return facts, entries


def _encrypted(entries: Sequence[_Entry], key: bytes) -> list[_Entry]:
    if not key:
        return list(entries)

    def sealed(entry: _Entry) -> _Entry:
        name = entry.member.name

        def parts() -> Iterable[bytes]:
            return sealing.encrypted(name, key, entry.parts)

        return _Entry(layout.member_of(name, parts(), encrypted=True), parts)

    return [sealed(entry) for entry in entries]


# ---- documents ----


def _documents(arguments: argparse.Namespace, targets: Sequence[Target], data: Sequence[_Entry]) -> Iterator[_Entry]:
    wheels = _wheels(targets)
    yield _of_bytes("sbom.cdx.json", _bill(arguments, wheels, data))
    found: dict[str, bytes] = {}
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel.path) as archive:
            for name in archive.namelist():
                path = f"licenses/{wheel.name}-{wheel.version}/{name.partition('/')[2]}"
                if _LICENSE.fullmatch(name) and not name.endswith("/") and not layout.problem_with_name(path):
                    found[path] = archive.read(name)
    for path in arguments.license:
        found[f"licenses/{os.path.basename(path)}"] = Path(path).read_bytes()
    for name, content in sorted(found.items()):
        yield _of_bytes(name, content)


def _bill(arguments: argparse.Namespace, wheels: dict[str, Wheel], data: Sequence[_Entry]) -> bytes:
    """Return the bill of materials, as CycloneDX. The hashes of encrypted files are not in it."""
    components = []
    for name, wheel in sorted(wheels.items()):
        text = wheel.metadata["License-Expression"] or ""
        components.append(
            {
                "type": "library",
                "bom-ref": f"wheels/{name}",
                "name": wheel.name,
                "version": wheel.version,
                "purl": f"pkg:pypi/{wheel.name}@{wheel.version}?file_name={name}",
                "hashes": [{"alg": "SHA-256", "content": _sha256(wheel)}],
                **({"licenses": [{"expression": text}]} if text else {}),
            }
        )
    for entry in data:
        hashes = {} if arguments.encrypt else {"hashes": [{"alg": "SHA-256", "content": entry.member.sha256}]}
        components.append({"type": "file", "bom-ref": entry.member.name, "name": entry.member.name, **hashes})
    about = {"type": "application", "bom-ref": "bundle", "name": Path(arguments.source).stem}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
        "dependencies": [{"ref": "bundle", "dependsOn": [each["bom-ref"] for each in components]}],
    }
    return json.dumps(bill, indent=1).encode() + b"\n"


def _about(arguments: argparse.Namespace, found: contents.Contents, targets: Sequence[Target]) -> dict[str, Any]:
    plugins = sorted({*found.plugins, *contents.owners_of(arguments.source)})
    return {
        "made_by": f"hami-tools {installed_version(TOOLS)}",
        "core": hami.__version__,
        "plugins": {name: installed_version(name) for name in plugins},
        "targets": [
            {
                "python": target.tag,
                "machine": target.machine,
                "glibc": list(target.glibc),
                "wheels": [f"wheels/{wheel.path.name}" for wheel in target.wheels],
            }
            for target in targets
        ],
        "unpacked": {f"wheels/{name}": wheel.unpacked for name, wheel in _wheels(targets).items()},
    }


# ---- the file ----


def _boot() -> Iterator[_Entry]:
    """Yield what starts a bundle: the modules of the package `boot`, which Python finds in the file."""
    for file in sorted(_BOOT.glob("*.py")):
        name = file.name if file.name == "__main__.py" else f"hami_bundle/{file.name}"
        yield _of_file(name, str(file))


def _of_bytes(name: str, content: bytes) -> _Entry:
    return _Entry(layout.member_of(name, [content]), lambda: [content])


def _of_file(name: str, path: str) -> _Entry:
    return _Entry(layout.member_of(name, _parts_of(path)), lambda: _parts_of(path))


def _parts_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while part := file.read(_PART):
            yield part


def _write(path: Path, facts: dict[str, Any], entries: Sequence[_Entry], sign: str | None) -> None:
    members = [entry.member for entry in entries]
    manifest = layout.manifest_of(facts, members)
    seal = layout.seal_of(manifest, sealing.signature_of(manifest, sign) if sign else {})
    first = [_of_bytes(layout.MANIFEST, manifest), _of_bytes(layout.SEAL, seal)]
    headers, end = layout.headers([entry.member for entry in (*first, *entries)])
    with path.open("wb") as out:
        out.write(layout.PREFIX)
        for header, entry in zip(headers, (*first, *entries), strict=True):
            out.write(header)
            for part in entry.parts():
                out.write(part)
        out.write(end)


def _try(path: str) -> None:
    """Open the bundle that was written, and compare its answers: a file that a model needs may be missing in it."""
    named = f"{path}.hami"
    os.link(path, named)
    try:
        with hami.pipe(named):
            pass
    except hami.Error as error:
        raise ConfigError(
            f"the bundle does not work: {str(error).replace(named, 'it')}; if a file is missing in it, "
            "add it with --include"
        ) from error
    finally:
        os.unlink(named)


def _report(arguments: argparse.Namespace, output: Path, facts: dict[str, Any]) -> None:
    size = output.stat().st_size
    if arguments.json:
        print(json_of({"file": str(output), "bytes": size, **facts}))
        return
    print(f"wrote {printable(output)}: {size / 1e6:.1f} MB, {facts['samples']} samples")
    for target in facts["targets"]:
        glibc = ".".join(map(str, target["glibc"]))
        python = f"CPython 3.{target['python'].removeprefix('cp3')}"
        print(f"  {python} on {target['machine']}, glibc {glibc} or newer: {len(target['wheels'])} packages")
    if not facts["samples"]:
        print("note: it has no samples, so nothing compares its answers; add some: --input FILE", file=sys.stderr)
