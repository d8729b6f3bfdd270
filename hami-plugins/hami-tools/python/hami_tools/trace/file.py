"""Reads the file of a trace: slices, instants and requests, without further packages.

The file is a protocol buffer message of Perfetto, `perfetto.protos.Trace`; the numbers of fields are those of its
definition. Only what the core writes is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hami import ConfigError
from hami.cli import printable

PACKET = 1
CLOCKS, TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, DESCRIPTOR = 6, 8, 10, 11, 12, 60
REALTIME = 1  # the number of this clock
# The first packet of a file, as the core writes it: its sequence and flags, and the monotonic clock.
NUMBER = rb"[\x80-\xff]{0,3}[\0-\x7f]"
HEAD = re.compile(rb"\x0a%b\x50%b\x68\x01\x32%b\x0a%b\x08\x03\x10" % ((NUMBER,) * 4), re.DOTALL)
LONGEST_HEAD = 26  # bytes that it matches
BEGIN, END, INSTANT = 1, 2, 3
MAX_VARINT = 10  # bytes of a number of 64 bits; a longer one would take quadratic time
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Fields = dict[int, list[int | bytes]]


@dataclass
class Slice:
    """A slice or, with a duration of None, an instant. Times are in nanoseconds of the monotonic clock."""

    name: str
    category: str
    track: int
    start: int
    duration: int | None = None
    flows: list[int] = field(default_factory=list)
    values: dict[str, int | str] = field(default_factory=dict)


@dataclass
class Track:
    """A row of the timeline: a thread if it has a `thread`, the number of the thread in the system."""

    name: str
    process: int
    thread: int | None = None


@dataclass
class TraceFile:
    """What a trace contains. Files that were joined have several processes."""

    processes: dict[int, str]  # the names by number
    tracks: dict[int, Track]
    slices: list[Slice]
    started: int = 0  # in nanoseconds since 1970

    def of(self, category: str) -> list[Slice]:
        """Return the slices of a category that have ended, by their start."""
        found = [each for each in self.slices if each.category == category and each.duration is not None]
        return sorted(found, key=lambda each: each.start)


def read_trace(path: str | Path) -> TraceFile:
    """Return the contents of a trace. A packet that a killed process wrote in part is ignored, also in joined files.

    Raises:
        ConfigError: The path is not that of a regular file, or the file is not a trace or has no complete packet.
        OSError: The file cannot be read.
    """
    data = content_of(path)
    try:
        found = _Reader().read(data)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f'"{printable(str(path))}" is not a trace of hami: {error!r}') from None
    if not found.processes:  # a file begins with the packets of its clocks and its process
        state = "ends in its first packets" if data else "is empty"
        raise ConfigError(
            f'"{printable(str(path))}" {state}: it is not a trace of hami; record it again, until the program ends'
        )
    return found


def read_with_children(path: str | Path) -> tuple[TraceFile, list[str]]:
    """Return the contents of a trace and of those that its child processes have written beside it, as one timeline.

    `run.pftrace` has children in `run.NUMBER.pftrace`. Those that began before it are of an earlier run.

    Returns:
        The timeline, and why children were left out.

    Raises:
        ConfigError, OSError: As `read_trace` does for the trace itself.
    """
    path, problems = Path(path), list[str]()
    found = read_trace(path)
    for file in sorted(path.parent.iterdir()):
        between = file.name.removeprefix(path.stem + ".").removesuffix(path.suffix)
        if file.name != f"{path.stem}.{between}{path.suffix}" or not between.isdecimal():
            continue
        try:
            child = read_trace(file)
        except (ConfigError, OSError) as error:
            problems.append(str(error))
            continue
        if child.started >= found.started:
            found.processes.update(child.processes)
            found.tracks.update(child.tracks)
            found.slices += child.slices
    return found, problems


def content_of(path: str | Path) -> bytes:
    """Return the bytes of a file. Raises ConfigError if the path is not that of a regular file, and OSError."""
    if Path(path).exists() and not Path(path).is_file():  # a FIFO would wait, and a device may have no end
        raise ConfigError(f'"{printable(str(path))}" is not a file; give the path of a file that hami has written')
    return Path(path).read_bytes()


class _Reader:
    def __init__(self) -> None:
        self.texts: defaultdict[tuple[int, int], dict[int, str]] = defaultdict(dict)  # by sequence and kind
        self.tracks: dict[int, Track] = {}
        self.processes: dict[int, str] = {}
        self.slices: list[Slice] = []
        self.started = 0
        self.events: list[tuple[int, int, int, int, Fields]] = []

    def read(self, data: bytes) -> TraceFile:
        for packet in packets(data):
            self._packet(fields_of(packet))
        self.events.sort(key=lambda event: event[0])
        running: defaultdict[int, list[Slice]] = defaultdict(list)
        for time, kind, track, sequence, event in self.events:
            if kind != END:
                made = self._slice(time, track, sequence, event)
                self.slices.append(made)
                if kind == BEGIN:
                    running[track].append(made)
            elif running[track]:
                ended = running[track].pop()
                ended.duration = time - ended.start
                ended.values.update(self._values(sequence, event))
        return TraceFile(self.processes, self.tracks, self.slices, self.started)

    def _packet(self, packet: Fields) -> None:
        sequence = _int(packet[SEQUENCE][0])
        for interned in packet.get(INTERNED, ()):
            for kind, entries in fields_of(_bytes(interned)).items():
                for entry in entries:
                    number, text = _pair(fields_of(_bytes(entry)))
                    self.texts[sequence, kind][number] = text
        for snapshot in packet.get(CLOCKS, ()):
            clocks = [fields_of(_bytes(clock)) for clock in fields_of(_bytes(snapshot))[1]]
            times = [_int(clock[2][0]) for clock in clocks if clock[1] == [REALTIME]]
            self.started = self.started or next(iter(times), 0)
        for descriptor in packet.get(DESCRIPTOR, ()):
            self._track(fields_of(_bytes(descriptor)))
        for event in packet.get(TRACK_EVENT, ()):
            parts = fields_of(_bytes(event))
            self.events.append((_int(packet[TIMESTAMP][0]), _int(parts[9][0]), _int(parts[11][0]), sequence, parts))

    def _track(self, descriptor: Fields) -> None:
        number = _int(descriptor[1][0])
        name = _text(descriptor[2][0]) if 2 in descriptor else ""
        parent = _int(descriptor[5][0]) if 5 in descriptor else 0
        track = Track(name, self.tracks[parent].process if parent in self.tracks else 0)
        if 3 in descriptor:
            process = fields_of(_bytes(descriptor[3][0]))
            track.process, track.name = _int(process[1][0]), _text(process[6][0])
            self.processes[track.process] = track.name
        if 4 in descriptor:
            thread = fields_of(_bytes(descriptor[4][0]))
            track.thread = _int(thread[2][0])
            track.name = _text(thread[5][0])
        self.tracks[number] = track

    def _slice(self, time: int, track: int, sequence: int, event: Fields) -> Slice:
        name = self.texts[sequence, 2][_int(event[10][0])] if 10 in event else _text(event[23][0])
        category = self.texts[sequence, 1][_int(event[3][0])] if 3 in event else ""
        flows = [_int(flow) for flow in event.get(47, ())]
        return Slice(name, category, track, time, None, flows, self._values(sequence, event))

    def _values(self, sequence: int, event: Fields) -> dict[str, int | str]:
        values: dict[str, int | str] = {}
        for entry in event.get(4, ()):
            annotation = fields_of(_bytes(entry))
            name = self.texts[sequence, 3][_int(annotation[1][0])] if 1 in annotation else _text(annotation[10][0])
            texts = self.texts[sequence, 29]
            values[name] = texts[_int(annotation[17][0])] if 17 in annotation else _int(annotation[3][0])
        return values


def packets(data: bytes) -> Iterator[bytes]:
    """Yield the whole packets of a trace. One that ends in the first packet of a further file was cut off."""
    at = 0
    while at < len(data):
        try:
            tag, start = _varint(data, at)
            size, start = _varint(data, start)
        except IndexError:
            return
        if tag != PACKET << 3 | BYTES:
            raise ValueError(f"unexpected field {tag >> 3} at byte {at}")
        end = start + size
        cut = HEAD.search(data, at + 1, min(end + LONGEST_HEAD, len(data)))
        if cut and cut.start() < end:
            at = cut.start()
            continue
        if end > len(data):
            return
        at = end
        yield data[start:at]


def fields_of(message: bytes) -> Fields:
    """Return the values of each field of a message, by its number."""
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == VARINT:
            value, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, at = int.from_bytes(message[at : at + size], "little"), at + size
        elif kind == BYTES:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"unexpected wire type {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * MAX_VARINT, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number of more than {MAX_VARINT} bytes at byte {at}")


def _pair(entry: Fields) -> tuple[int, str]:
    return _int(entry[1][0]), _text(entry[2][0])


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TypeError("expected a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("expected a message")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode("utf-8", "backslashreplace")
