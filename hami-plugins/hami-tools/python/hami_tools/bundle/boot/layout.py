"""The file format of bundles: a zip file whose every byte follows from its manifest, and is compared with it.

A bundle begins with a line for the shell. The members follow without gaps, uncompressed: first the manifest, then the
seal, which has the hash of the manifest and may have a signature, then the members that the manifest lists with their
hashes. The list of members at the end makes the file one that zip tools and Python read. Because sizes, order and
attributes are determined, there is nothing to interpret: no second list of members, links, gaps or compression.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

FORMAT = 1
PREFIX = b"#!/usr/bin/env python3\n"
MANIFEST, SEAL = "hami-bundle.json", "hami-bundle.seal"
MAX_MANIFEST, MAX_SEAL = 64 << 20, 1 << 16  # bytes
PIECE = 16 << 20  # bytes; larger members have a hash for each piece, so that several threads can verify them
_READ = 1 << 20  # bytes of one read
_AGAIN = "get the bundle again, or make it again with hami bundle"

_LIMIT = 0xFFFFFFFF  # larger numbers are in an additional field (zip64)
_UTF8, _DATE, _UNIX, _MODE = 0x800, 0x21, 3 << 8, 0o100644 << 16  # a regular file of 1 January 1980
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")


class BundleError(Exception):
    """A file is not a bundle that can be used here; the text says why, and what to do."""


class Member(NamedTuple):
    """One file in a bundle."""

    name: str
    size: int
    crc32: int
    sha256: str
    pieces: tuple[str, ...] = ()  # the hash of each piece, if it has several
    encrypted: bool = False

    def facts(self) -> dict[str, Any]:
        """Return its entry in the manifest."""
        more = {"pieces": list(self.pieces)} if self.pieces else {}
        encrypted = {"encrypted": True} if self.encrypted else {}
        return {"name": self.name, "size": self.size, "crc32": self.crc32, "sha256": self.sha256, **more, **encrypted}


class Bundle(NamedTuple):
    """An open bundle whose headers are as its manifest says. The contents of its members are not verified yet."""

    path: str
    facts: Mapping[str, Any]  # the manifest
    manifest: bytes
    digest: str  # of the manifest, and so of the bundle
    seal: Mapping[str, Any]
    members: Mapping[str, Member]
    offsets: Mapping[str, int]

    def read(self, name: str) -> bytes:
        """Return the verified content of a member."""
        return b"".join(verified_parts(self, self.member(name)))

    def member(self, name: str) -> Member:
        """Return a member that the manifest refers to."""
        try:
            return self.members[name]
        except (KeyError, TypeError):
            raise BundleError(f"{self.path} is damaged: it has no member {name!r}; {_AGAIN}") from None


# ---- writing ----


def member_of(name: str, parts: Iterable[bytes], *, encrypted: bool = False) -> Member:
    """Return the entry of a file with this content."""
    whole, size, crc = hashlib.sha256(), 0, 0
    pieces: list[Any] = []
    for part in parts:
        whole.update(part)
        crc = zlib.crc32(part, crc)
        view = memoryview(part)
        while view:
            space = PIECE - size % PIECE
            if space == PIECE:
                pieces.append(hashlib.sha256())
            pieces[-1].update(view[:space])
            size += len(view[:space])
            view = view[space:]
    hashes = tuple(piece.hexdigest() for piece in pieces) if len(pieces) > 1 else ()
    return Member(name, size, crc, whole.hexdigest(), hashes, encrypted)


def headers(members: Sequence[Member]) -> tuple[list[bytes], bytes]:
    """Return the header of each member, and the end of the file with the list of members."""
    local, central, offset = [], [], len(PREFIX)
    for member in members:
        name = member.name.encode("utf-8")
        large = member.size >= _LIMIT
        extra = struct.pack("<2H2Q", 1, 16, member.size, member.size) if large else b""
        size = _LIMIT if large else member.size
        common = (_UTF8, 0, 0, _DATE, member.crc32, size, size, len(name))
        version = 45 if large else 20
        header = _LOCAL.pack(b"PK\3\4", version, *common, len(extra)) + name + extra
        fields = [member.size, member.size] if large else []
        at = offset if offset < _LIMIT else _LIMIT
        fields += [offset] if at == _LIMIT else []
        extra = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        version = 45 if fields else 20
        entry = _CENTRAL.pack(b"PK\1\2", _UNIX | version, version, *common, len(extra), 0, 0, 0, _MODE, at)
        local.append(header)
        central.append(entry + name + extra)
        offset += len(header) + member.size
    listed = b"".join(central)
    count, end = len(members), b""
    if count >= 0xFFFF or len(listed) >= _LIMIT or offset >= _LIMIT:
        end = _END_64.pack(b"PK\6\6", 44, _UNIX | 45, 45, 0, 0, count, count, len(listed), offset)
        end += _LOCATOR_64.pack(b"PK\6\7", 0, offset + len(listed), 1)
    count, size, offset = min(count, 0xFFFF), min(len(listed), _LIMIT), min(offset, _LIMIT)
    return local, listed + end + _END.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)


def seal_of(manifest: bytes, signature: Mapping[str, str]) -> bytes:
    """Return the content of the seal of a manifest."""
    return _json({"sha256": hashlib.sha256(manifest).hexdigest(), **signature})


def manifest_of(facts: Mapping[str, Any], members: Sequence[Member]) -> bytes:
    """Return the content of the manifest."""
    return _json({"format": FORMAT, **facts, "members": [member.facts() for member in members]})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8") + b"\n"


def sealed_members(manifest: bytes, seal: bytes, members: Sequence[Member]) -> list[Member]:
    """Return every member of a bundle in its order."""
    return [member_of(MANIFEST, [manifest]), member_of(SEAL, [seal]), *members]


# ---- reading ----


def open_bundle(path: str) -> Bundle:
    """Open a bundle, and compare everything but the contents of its members with its manifest."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BundleError(f"{path} is not a bundle: it is not a regular file")
            return _opened(path, file, status.st_size)
    except OSError as error:
        raise BundleError(f"cannot read the bundle {path}: {error.strerror or error}") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe may have no writer


def _opened(path: str, file: Any, size: int) -> Bundle:
    prefix = file.read(len(PREFIX))
    if prefix != PREFIX:
        if prefix == PREFIX[:size]:
            raise _cut_off(path, size)
        raise BundleError(f"{path} is not a bundle: it does not begin as hami bundle writes it; {_AGAIN}")
    manifest = _first_member(path, file, size, MANIFEST, MAX_MANIFEST)
    seal = _first_member(path, file, size, SEAL, MAX_SEAL)
    digest = hashlib.sha256(manifest).hexdigest()
    sealed = _table(path, SEAL, seal)
    if sealed.get("sha256") != digest:
        raise _changed(path, f"{MANIFEST} or {SEAL}")
    facts = _table(path, MANIFEST, manifest)
    version = facts.get("format")
    if version != FORMAT:
        raise BundleError(
            f"{path} has the format {version!r}, and this program reads {FORMAT}: it was made by a later hami-tools; "
            "upgrade it (pip install -U hami-tools), or start the bundle with Python: python " + path
        )
    members = _members(path, facts.get("members"))
    _require_form(path, facts, {member.name: member for member in members})
    offsets = _compare(path, file, size, sealed_members(manifest, seal, members))
    return Bundle(path, facts, manifest, digest, sealed, {each.name: each for each in members}, offsets)


def _first_member(path: str, file: Any, size: int, name: str, limit: int) -> bytes:
    """Return the content of a member that the manifest does not list; its header says how large it is."""
    start = file.read(_LOCAL.size)
    if len(start) < _LOCAL.size:
        raise _cut_off(path, size)
    length = _LOCAL.unpack(start)[8]
    file.seek(len(name.encode()), os.SEEK_CUR)
    if length > limit:
        raise _changed(path, name)
    content = bytes(file.read(length))
    if len(content) < length:
        raise _cut_off(path, size)
    return content


def _table(path: str, name: str, content: bytes) -> dict[str, Any]:
    try:
        table = json.loads(content)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise _changed(path, name)
    return table


def _members(path: str, listed: Any) -> list[Member]:
    """Return the members that a manifest lists; refuse names that could lead out of a folder."""
    members: list[Member] = []
    seen, folders = {MANIFEST, SEAL}, set()
    try:
        for each in listed:
            member = Member(
                each["name"],
                each["size"],
                each["crc32"],
                each["sha256"],
                tuple(each.get("pieces", ())),
                bool(each.get("encrypted", False)),
            )
            if problem := problem_with_name(member.name):
                raise BundleError(f"{path} has a member whose name {problem}: {member.name!r}; do not use this file")
            if member.name in seen:
                raise BundleError(f"{path} has two members with the name {member.name!r}; do not use this file")
            if type(member.size) is not int or type(member.crc32) is not int:
                raise TypeError
            counts = -(-member.size // PIECE) if member.size > PIECE else 0
            if not 0 <= member.size < 1 << 60 or not 0 <= member.crc32 <= _LIMIT or len(member.pieces) != counts:
                raise ValueError
            seen.add(member.name)
            parts = member.name.split("/")
            folders |= {"/".join(parts[:end]) for end in range(1, len(parts))}
            members.append(member)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise _changed(path, MANIFEST) from None
    if both := sorted(seen & folders):
        raise BundleError(f"{path} has a member {both[0]!r} that is a file and a folder; do not use this file")
    return members


def _require_form(path: str, facts: Mapping[str, Any], members: Mapping[str, Member]) -> None:
    """Raise BundleError if what a manifest says about the packages and the pipeline has another form."""
    try:
        for target in facts.get("targets", []):
            texts = [target["python"], target["machine"], *target["wheels"]]
            numbers = [*target["glibc"], *(facts["unpacked"][name] for name in target["wheels"])]
            if not all(isinstance(text, str) for text in texts) or not all(isinstance(each, int) for each in numbers):
                raise TypeError
        named = [name for target in facts.get("targets", []) for name in target["wheels"]]
        named += [facts["source"]] if "source" in facts else []
        plugins = facts.get("plugins", {})
        texts = [*plugins, *plugins.values(), facts.get("key_id", "")]
        numbers = [facts.get("samples", 0), facts.get("tolerance", 0)]
        right = all(isinstance(text, str) for text in texts) and all(isinstance(each, (int, float)) for each in numbers)
    except (TypeError, KeyError, AttributeError):
        raise _changed(path, MANIFEST) from None
    if not right or any(name not in members for name in named):
        raise _changed(path, MANIFEST)


def problem_with_name(name: Any) -> str:
    """Return what is wrong with the name of a file in an archive; empty if it stays in its folder."""
    if not isinstance(name, str) or not name or len(name) > 1000:
        return "is not a text of 1 to 1000 characters"
    if not name.isprintable() or "\\" in name:
        return "has a control character or a backslash"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "leads out of its folder, or is not in its shortest form"
    return ""


def _compare(path: str, file: Any, size: int, members: Sequence[Member]) -> dict[str, int]:
    """Compare the headers with those that belong to the members; return where the contents begin."""
    local, end = headers(members)
    expected = len(PREFIX) + sum(map(len, local)) + sum(member.size for member in members) + len(end)
    if size < expected:
        raise _cut_off(path, size, expected)
    offsets, at = {}, len(PREFIX)
    for member, header in zip(members, local, strict=True):
        file.seek(at)
        if file.read(len(header)) != header:
            raise _changed(path, member.name, "the header of ")
        offsets[member.name] = at + len(header)
        at += len(header) + member.size
    file.seek(at)
    found = file.read(len(end) + 1)
    if found != end:
        raise _changed(path, _entry_at(members, end, found), "the list of members at its end, at ")
    return offsets


def _entry_at(members: Sequence[Member], expected: bytes, found: bytes) -> str:
    """Return the member whose entry is the first that differs."""
    at = next((index for index, pair in enumerate(zip(expected, found)) if pair[0] != pair[1]), len(expected))  # noqa: B905
    begin = 0
    for member in members:
        length = _CENTRAL.unpack_from(expected, begin)
        begin += _CENTRAL.size + length[10] + length[11]
        if at < begin:
            return member.name
    return "its last bytes"


def _cut_off(path: str, size: int, expected: int = 0) -> BundleError:
    of = f" of {expected}" if expected else ""
    return BundleError(f"{path} is cut off: it has {size}{of} bytes; {_AGAIN}")


def _changed(path: str, name: str, what: str = "") -> BundleError:
    return BundleError(f"{path} was changed after it was made: {what}{name} differs; {_AGAIN}")


# ---- verifying ----


def verify(bundle: Bundle, threads: int = 0) -> None:
    """Compare the content of every member with its hash; raise BundleError for the first that differs."""
    jobs = [
        (member, at, min(PIECE, member.size - at) if member.pieces else member.size, expected)
        for member in bundle.members.values()
        for at, expected in hashes(member)
    ]
    with open(bundle.path, "rb") as file:
        handle = file.fileno()

        def right(job: tuple[Member, int, int, str]) -> bool:
            member, at, length, expected = job
            return _hash_of(handle, bundle.offsets[member.name] + at, length) == expected

        with ThreadPoolExecutor(threads or usable_cores()) as pool:
            for job, same in zip(jobs, pool.map(right, jobs), strict=True):
                if not same:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise _changed(bundle.path, job[0].name)


def hashes(member: Member) -> Iterator[tuple[int, str]]:
    """Yield the beginning of each piece of a member, with its hash."""
    if not member.pieces:
        yield 0, member.sha256
    for number, piece in enumerate(member.pieces):
        yield number * PIECE, piece


_buffers = threading.local()


def _hash_of(handle: int, at: int, length: int) -> str:
    buffer = getattr(_buffers, "view", None)
    if buffer is None:
        buffer = _buffers.view = memoryview(bytearray(_READ))
    hashed = hashlib.sha256()
    while length:
        count = os.preadv(handle, [buffer[: min(length, _READ)]], at)
        if not count:  # the file became shorter
            return ""
        hashed.update(buffer[:count])
        at, length = at + count, length - count
    return hashed.hexdigest()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def verified_parts(bundle: Bundle, member: Member) -> Iterator[bytes]:
    """Yield the content of a member in parts, each after its hash was compared."""
    with open(bundle.path, "rb") as file:
        for at, expected in hashes(member):
            yield verified_part(bundle, member, file, at, expected)


def verified_part(bundle: Bundle, member: Member, file: BinaryIO, at: int, expected: str) -> bytes:
    """Return what an open file has at this place of a member, after its hash was compared."""
    file.seek(bundle.offsets[member.name] + at)
    part = file.read(min(PIECE, member.size - at))
    if hashlib.sha256(part).hexdigest() != expected:
        raise _changed(bundle.path, member.name)
    return part


def is_member(path: str, member: Member) -> bool:
    """Return whether a file on the disk has the content of a member."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size != member.size:
                return False
            handle = file.fileno()
            return all(
                _hash_of(handle, at, min(PIECE, member.size - at) if member.pieces else member.size) == expected
                for at, expected in hashes(member)
            )
    except OSError:
        return False
