"""The private folders of a bundle: its files and the packages for this Python, verified each time it starts."""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import layout
from .layout import Bundle, BundleError, Member

VARIABLE = "HAMI_BUNDLE_DIR"  # the folder for what bundles unpack, in place of that of the user
_PART = 1 << 20  # bytes of one read
_COLLISIONS = (FileExistsError, NotADirectoryError, IsADirectoryError)  # two files of one name, or inside each other
_WORK = re.compile(r"\.[0-9a-f]{16}-[a-z0-9_]{8}")  # a folder that is being filled
_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
_RECORD_SIGNATURE = re.compile(r"[^/]+\.dist-info/RECORD\.(jws|p7s)")


# ---- packages for this Python ----


def target_of(bundle: Bundle) -> Mapping[str, Any]:
    """Return the packages for this Python and this kind of machine; raise BundleError if there are none."""
    python, machine, glibc = this_machine()
    targets: list[Mapping[str, Any]] = bundle.facts.get("targets", [])
    for target in targets:
        if target["python"] == python and target["machine"] == machine and tuple(target["glibc"]) <= glibc:
            return target
    here = f"{_python(python)} on {machine} {_libc(glibc)}"
    if not targets:
        raise BundleError(f"{bundle.path} has no packages; open it with an installed hami: hami run {bundle.path}")
    there = ", ".join(f"{_python(each['python'])} on {each['machine']} {_libc(each['glibc'])}" for each in targets)
    raise BundleError(
        f"{bundle.path} has packages for {there}, and this is {here}; start it with one of those, or make it again: "
        f"hami bundle … --platform {machine} --python-version {_version(python)}"
    )


def this_machine() -> tuple[str, str, tuple[int, ...]]:
    """Return the tag of this Python, its architecture, and the version of glibc; (0, 0) with another C library."""
    tag = "cp" if sys.implementation.name == "cpython" else sys.implementation.name
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
        glibc = tuple(int(part) for part in text.split()[-1].split("."))
    except (ValueError, OSError, IndexError):
        glibc = (0, 0)
    return f"{tag}{sys.version_info[0]}{sys.version_info[1]}{threads}", os.uname().machine, glibc


def _python(tag: str) -> str:
    return f"CPython {_version(tag)}" if tag.startswith("cp") else tag


def _version(tag: str) -> str:
    digits = tag.removeprefix("cp")
    return f"{digits[:1]}.{digits[1:]}"


def _libc(glibc: Any) -> str:
    newest = ".".join(map(str, glibc))
    return f"with glibc {newest}" if any(glibc) else "without glibc"


def packages(bundle: Bundle) -> str:
    """Return the folder with the unpacked packages for this Python, each file compared with its hash."""
    target = target_of(bundle)
    wheels = [_Wheel(bundle, name) for name in target["wheels"]]
    owners: dict[str, _Wheel] = {}
    for wheel in wheels:
        for file, found in wheel.files.items():
            owner = owners.setdefault(file, wheel)
            if owner.files[file] != found:
                raise BundleError(
                    f"{owner.name} and {wheel.name} in {bundle.path} both contain {file}; make the bundle without one"
                )
    return _folder(
        f"{bundle.digest}-{target['python']}-{target['machine']}",
        lambda folder: _is_installed(folder, owners),
        lambda folder: _in_parallel(lambda wheel: wheel.unpack(folder, owners), wheels),
    )


class _Wheel:
    """A wheel in a bundle."""

    def __init__(self, bundle: Bundle, name: str) -> None:
        self._bundle = bundle
        self._member = bundle.member(name)
        self._limit = int(bundle.facts["unpacked"][name])  # bytes
        self.name = os.path.basename(name)
        self.files: dict[str, str] = {}  # the hashes of its files by their paths in the folder
        try:
            with self._open() as archive:
                self._read_record(archive)
        except (zipfile.BadZipFile, OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
            raise self._broken(error) from error

    def _open(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BufferedReader(_Section(self._bundle, self._member)))  # it reads on after a piece

    def _broken(self, error: object) -> BundleError:
        return BundleError(f"{self.name} in {self._bundle.path} cannot be unpacked: {error}; do not use this file")

    def _read_record(self, archive: zipfile.ZipFile) -> None:
        record = next((name for name in archive.namelist() if _RECORD.fullmatch(name)), "")
        if not record or archive.getinfo(record).file_size > self._limit:
            raise ValueError("it has no RECORD, or one that is too large")
        rows = csv.reader(io.StringIO(archive.read(record).decode("utf-8")))
        self.files = {_place(row[0]): row[1] for row in rows if len(row) > 1 and row[1]}
        self.files[record] = _hash_of(archive.read(record))

    def unpack(self, folder: str, owners: Mapping[str, _Wheel]) -> None:
        """Write the files of the wheel that it owns, each compared with its hash in RECORD."""
        try:
            with self._open() as archive:
                left = self._limit
                for info in archive.infolist():
                    if not info.is_dir() and not _RECORD_SIGNATURE.fullmatch(info.filename):
                        left -= self._write(archive, info, folder, owners, left)
        except (zipfile.BadZipFile, *_COLLISIONS, ValueError, NotImplementedError, RuntimeError) as error:
            raise self._broken(error) from error  # any other OSError is one of the disk

    def _write(
        self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: str, owners: Mapping[str, _Wheel], left: int
    ) -> int:
        name = info.filename
        if problem := layout.problem_with_name(name):
            raise ValueError(f"the name of its file {name!r} {problem}")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"{name} is a link")
        place = _place(name)
        if place not in self.files:
            raise ValueError(f"its RECORD does not list {name} with a hash")
        if owners[place] is not self:
            return 0
        path, written, hashed = os.path.join(folder, place), 0, hashlib.sha256()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(info) as source, open(path, "xb") as out:
            while part := source.read(_PART):
                written += len(part)
                if written > left:
                    raise ValueError(f"it has more than the {self._limit} bytes that the manifest allows")
                hashed.update(part)
                out.write(part)
        if _encoded(hashed) != self.files[place]:
            raise ValueError(f"{name} is not what its RECORD lists")
        return written


def _place(name: str) -> str:
    """Return the place of a wheel's file: files for other folders go where `pip install --target` puts them."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, path = rest.partition("/")
    return path if kind in ("purelib", "platlib", "data") else f"{'bin' if kind == 'scripts' else kind}/{path}"


def _encoded(hashed: Any) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=")


def _hash_of(content: bytes) -> str:
    return _encoded(hashlib.sha256(content))


def _is_installed(folder: str, owners: Mapping[str, _Wheel]) -> bool:
    """Return whether a folder has exactly these files, apart from the bytecode that Python writes."""
    for place, inside, files in os.walk(folder):
        inside[:] = [name for name in inside if name != "__pycache__"]
        if any(os.path.relpath(os.path.join(place, name), folder) not in owners for name in files):
            return False
    return all(
        _in_parallel(lambda each: _hash(os.path.join(folder, each[0])) == each[1].files[each[0]], owners.items())
    )


def _hash(path: str) -> str:
    hashed = hashlib.sha256()
    try:
        with open(path, "rb") as source:
            while part := source.read(_PART):
                hashed.update(part)
    except OSError:
        return ""
    return _encoded(hashed)


class _Section(io.RawIOBase):
    """A member of a bundle as a file. What it reads is compared again: the bundle may have changed since."""

    def __init__(self, bundle: Bundle, member: Member) -> None:
        self._bundle, self._member, self._at = bundle, member, 0
        self._hashes = list(layout.hashes(member))
        self._number, self._part = -1, b""  # the part that was read last
        self._file = open(bundle.path, "rb")  # noqa: SIM115 (closed with this object)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._member.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._member.size:
            return 0
        number, offset = divmod(self._at, layout.PIECE)
        if number != self._number:
            self._part = layout.verified_part(self._bundle, self._member, self._file, *self._hashes[number])
            self._number = number
        found = self._part[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()


# ---- configuration and models ----


def files(bundle: Bundle) -> str:
    """Return the folder with the configuration, the models and the samples; those that are encrypted are left out."""
    members = [each for each in bundle.members.values() if not each.encrypted and is_data(each.name)]

    def is_whole(folder: str) -> bool:
        return all(_in_parallel(lambda each: layout.is_member(os.path.join(folder, each.name), each), members))

    def unpack(folder: str) -> None:
        for each in members:
            write_member(bundle, each, folder)

    return _folder(f"{bundle.digest}-files", is_whole, unpack)


def is_data(name: str) -> bool:
    """Return whether a member is used by the pipeline, and not a package or a description."""
    return name.startswith(("config/", "samples/"))


def write_member(bundle: Bundle, member: Member, folder: str) -> None:
    """Write a member into a folder."""
    path = os.path.join(folder, member.name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as out:
        for part in layout.verified_parts(bundle, member):
            out.write(part)


# ---- folders ----


def _folder(name: str, is_whole: Callable[[str], bool], fill: Callable[[str], Any]) -> str:
    """Return a folder with the right content: one that is there already, else a new one."""
    parent = _parent()
    folder = os.path.join(parent, name)
    if os.path.isdir(folder) and is_whole(folder):
        return folder
    with _alone(parent) as is_alone:  # another process that replaced it would take files from those that use it
        for left in filter(_WORK.fullmatch, os.listdir(parent) if is_alone else ()):  # by a process that was killed
            shutil.rmtree(os.path.join(parent, left), ignore_errors=True)
        return _made(parent, name, is_whole, fill)


def _made(parent: str, name: str, is_whole: Callable[[str], bool], fill: Callable[[str], Any]) -> str:
    folder = os.path.join(parent, name)
    for _ in range(2):  # a file system without locks lets others do the same
        if os.path.isdir(folder) and is_whole(folder):
            return folder
        work = tempfile.mkdtemp(prefix=f".{name[:16]}-", dir=parent)
        try:
            fill(work)
            if os.path.isdir(folder):
                os.rename(folder, os.path.join(work, ".damaged"))
            os.rename(work, folder)
        except OSError as error:
            shutil.rmtree(work, ignore_errors=True)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT) or not os.path.isdir(folder):
                raise BundleError(
                    f"cannot unpack into {parent}: {error.strerror}; name a folder with space: {VARIABLE}=FOLDER"
                ) from error
            continue
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(os.path.join(folder, ".damaged"), ignore_errors=True)
        return folder
    raise BundleError(f"{folder} is changed by other programs; remove it, or name another folder: {VARIABLE}=FOLDER")


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[bool]:
    """Wait until no other process unpacks into a folder; False: its file system has no locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            is_alone = True
        except OSError:
            is_alone = False
        yield is_alone
    finally:
        os.close(handle)


def _parent() -> str:
    """Return the folder for unpacked bundles, which only this user can change."""
    given = os.environ.get(VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = given or os.path.join(cache, "hami", "bundles")
    try:
        make_private(folder)
        status = os.stat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise BundleError(f"other users can change {folder}; name another folder: {VARIABLE}=FOLDER")
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return os.path.realpath(folder)
        problem = "this user cannot write into it"
    except OSError as error:
        problem = error.strerror or str(error)
    raise BundleError(f"cannot unpack into {folder}: {problem}; name another folder: {VARIABLE}=FOLDER")


def make_private(folder: str) -> None:
    """Create a folder and those around it, for this user alone. Raises OSError.

    As `hami.packages.make_private`, which is not there where a bundle starts: nothing is installed yet.
    """
    if not os.path.isdir(folder):
        make_private(os.path.dirname(os.path.abspath(folder)))
        with contextlib.suppress(FileExistsError):  # another process makes it
            os.mkdir(folder, 0o700)


def _in_parallel(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(layout.usable_cores()) as pool:
        return list(pool.map(function, items))
