"""`hami run` for the pipelines of this package: on videos, cameras and pictures, with sinks."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

import hami
from hami.cli import json_of, printable, report, traced
from hami.config import read_source
from hami.progress import Progress

from hami_vision.delivery import Delivery, Sink
from hami_vision.detections import NO_ID
from hami_vision.live_page import LivePage
from hami_vision.readers import PICTURES
from hami_vision.saving import SaveFolder
from hami_vision.sources import Frame, Sources, SourceState
from hami_vision.webhook import message_of

OF_PICTURES = ("detect", "segment", "count-heads")  # their first node decodes a file
PIPELINES = (*OF_PICTURES, "track", "count-people")
_SAMPLE = {"model": "squares.onnx", "labels": "squares.txt"}
_SAMPLE_LINES = "lines=door: 160,320, 160,0"
_MOST_RUNNING = 32  # frames in the pipe: enough for batches, and few in memory
_MOST_OPEN = 16  # files that are read at a time, beside all streams and devices
_POLL = 0.1  # seconds without a frame after which it looks at the sources
_RECENT = 32  # frames over which the rate in the bar is measured
_LEFT_OUT = ("nan_boxes", "outside", "over_max_objects")  # counters of DecodeDetections and the nodes that count
_MOST_REPORTED = 3  # failures of a source that are printed; each frame of a stream for days may fail


def run(arguments: argparse.Namespace, otherwise: Callable[[argparse.Namespace], int]) -> int:
    """Run a pipeline on sources; return 1 if a request, a source or a sink failed, and 130 or 143 after a signal.

    Args:
        arguments: Those of `hami run`.
        otherwise: Runs other pipelines, and inputs that `hami run` reads itself, such as arrays and text.
    """
    name = arguments.source.rpartition("::")[2]
    shows = arguments.save or arguments.show or arguments.sample
    sample = files("hami_vision") / "sample"
    inputs = [*arguments.inputs, *([str(sample / "walk.webm")] if arguments.sample else [])]
    if arguments.text or arguments.data or not _are_sources(name, inputs, bool(shows)):
        if shows:
            raise hami.ConfigError(
                f"--save, --show and --sample are for videos, cameras, folders and pictures of {', '.join(PIPELINES)}; "
                f"got {name} with {', '.join(inputs) or 'no input'}"
            )
        return otherwise(arguments)
    if arguments.sample and name == "segment":
        raise hami.ConfigError("the model of --sample has no masks; give segment one by --set model=FILE, and a source")
    if arguments.node:
        raise hami.ConfigError(f"--node is not for videos, cameras, folders and pictures: they have one way in {name}")
    settings = list(arguments.set)
    if arguments.sample:
        settings = [*(f"{key}={sample / file}" for key, file in _SAMPLE.items()), *settings]
        settings += [_SAMPLE_LINES] if name == "count-people" else []
    config, problems = read_source(arguments.source, settings, arguments.imports)
    if problems:
        raise problems[0]
    sinks: dict[str, Sink] = {}
    save = SaveFolder(arguments.save, {"pipeline": name, "set": settings}) if arguments.save else None
    if save is not None:
        sinks["files"] = save
    if arguments.show:
        page = LivePage(arguments.port)
        print(f"live: {page.address}", file=sys.stderr)
        sinks["page"] = page
    with (
        hami.pipe(config) as pipe,
        traced(pipe, arguments),
        Delivery(sinks, lossless=("files",) if save else ()) as delivery,
        Progress(max(1, len(inputs))) as progress,
        _Signals() as signals,
    ):
        work = _Work(pipe, {"node_name": name} if name in OF_PICTURES else {}, delivery, save, arguments.json)
        work.run(inputs, progress, signals)
    return work.report(delivery) or (128 + signals.received if signals.received else 0)


def _are_sources(name: str, inputs: list[str], shows: bool) -> bool:
    """Return whether inputs are videos and the like; `hami run` itself reads arrays, and prints objects of pictures."""
    if not inputs or name not in PIPELINES:
        return False
    if any(each == "-" or each.endswith((".npy", ".npz")) for each in inputs):
        return False
    return shows or name not in OF_PICTURES or not all(each.lower().endswith(PICTURES) for each in inputs)


def _ends(place: str) -> bool:
    """Return whether a source comes to an end: not a stream or the number of a device."""
    return "://" not in place and not place.isdecimal()


def _short(place: str) -> str:
    """Return the name of a file without its folder, so that several fit into the line of a terminal."""
    return printable(os.path.basename(place.rstrip("/")) if _ends(place) else place)


class _Signals:
    """The first Ctrl-C or SIGTERM only sets `received`, so that files are completed; the next one works as usual."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: object) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


class _Source:
    """Counts of one source."""

    def __init__(self) -> None:
        self.frames = self.failed = self.running = self.objects = self.tracked = 0
        self._last_id = NO_ID
        self.counts: dict[str, Any] = {}
        self.state = SourceState()
        self._began: float | None = None  # when its first frame was started
        self._ends: deque[float] = deque(maxlen=_RECENT)

    def start(self) -> None:
        self.running += 1
        if self._began is None:
            self._began = time.monotonic()

    def take(self, result: Any) -> None:
        self.frames += 1
        self._ends.append(time.monotonic())
        if isinstance(result, dict):
            self.counts = result
        found = self.counts.get("detections", result)
        self.objects += len(found)
        if getattr(found, "ids", None) is not None:  # new ones are larger than all before
            new = {each for each in found.ids.tolist() if each > self._last_id}
            self.tracked += len(new)
            self._last_id = max([self._last_id, *new])

    @property
    def rate(self) -> float:
        """Frames per second of the last frames."""
        passed = self._ends[-1] - self._ends[0] if len(self._ends) > 1 else 0.0
        return (len(self._ends) - 1) / passed if passed else 0.0

    @property
    def mean_rate(self) -> float:
        """Frames per second from the start of the first one to the last result."""
        passed = self._ends[-1] - self._began if self._ends and self._began is not None else 0.0
        return self.frames / passed if passed else 0.0

    def lines(self) -> list[str]:
        state = self.state
        counts = {"dropped": state.dropped, "refused": state.refused, "losses": state.losses, "failed": self.failed}
        others = "".join(f", {name}: {count}" for name, count in counts.items() if count)
        reason = ""
        if state.reason:
            reason = f"{': ' if state.state == 'failed' else '; last failure: '}{printable(state.reason)}"
        lines = [f"{self.frames} frames, {self.mean_rate:.1f}/s{others}; {state.state}{reason}"]
        for name, each in self.counts.get("lines", {}).items():
            lines.append(f"{name}: in {each['in']}, out {each['out']}")
        for name, each in self.counts.get("zones", {}).items():
            entered = f", {each['entered']} entered" if "entered" in each else ""
            lines.append(f"{name}: {each['inside']} inside{entered}")
        if "objects" in self.counts:
            return [*lines, f"objects: {self.counts['objects']}"]
        return [*lines, f"objects: {self.tracked}" if self.tracked else f"objects in all frames: {self.objects}"]


class _Work:
    """Frames of all sources through the pipe to the sinks."""

    def __init__(
        self, pipe: hami.Pipe, keys: dict[str, str], delivery: Delivery, save: SaveFolder | None, prints: bool
    ) -> None:
        self._pipe, self._keys, self._delivery, self._save, self._prints = pipe, keys, delivery, save, prints
        self._running: deque[tuple[Frame, Any]] = deque()
        self._sources: dict[str, _Source] = {}
        self._skipped: list[str] = []
        self._ended = 0

    def run(self, inputs: list[str], progress: Progress, signals: _Signals) -> None:
        """Return when every source has ended, or after a signal, when what runs is delivered."""
        waiting = deque(sorted(dict.fromkeys(inputs), key=_ends))  # streams first: they are all open at a time
        with Sources({}, take="auto") as sources:
            while not signals.received:
                while waiting and (not _ends(waiting[0]) or sum(map(_ends, sources.states())) < _MOST_OPEN):
                    self._add(sources, waiting.popleft())
                frame = sources.next(_POLL)
                if frame is not None:
                    self._start(frame)
                self._finish(_MOST_RUNNING if frame is not None else 0)
                self._end_sources(sources)
                if not waiting and not sources.states():
                    return
                rates = (f"{_short(name)} {self._sources[name].rate:.1f}/s" for name in sources.states())
                progress.update(self._ended, "  ".join(rates))
            for name, state in sources.states().items():
                is_cut = not state.is_done or (state.state == "ended" and state.waiting)
                self._sources[name].state = replace(state, state="closed") if is_cut else state
        self._finish(0)

    def _add(self, sources: Sources, place: str) -> None:
        shown = hami.observe.redact(place)  # that of two addresses whose passwords alone differ is the same
        names = itertools.chain([shown], (f"{shown} ({number})" for number in itertools.count(2)))
        name = next(each for each in names if each not in self._sources)
        if self._save is not None and self._save.is_complete(name):
            self._skipped.append(name)
            self._ended += 1
            return
        self._sources[name] = _Source()
        sources.add(name, int(place) if place.isdecimal() else place)

    def _start(self, frame: Frame) -> None:
        self._sources[frame.source].start()
        try:
            future = self._pipe.submit({**frame.request(), **self._keys})
        except Exception as error:
            self._sources[frame.source].running -= 1
            self._fail(frame, error)
            return
        self._running.append((frame, future))

    def _finish(self, most: int) -> None:
        """Deliver the frames that are ready, in their order, and wait until at most so many are in the pipe."""
        while self._running and (len(self._running) > most or self._running[0][1].done()):
            frame, future = self._running.popleft()
            source = self._sources[frame.source]
            source.running -= 1
            try:
                result = future.result()["result"]
            except Exception as error:
                self._fail(frame, error)
                continue
            source.take(result)
            if self._prints:
                print(json_of(message_of(frame, result)), flush=True)
            self._delivery.send(frame, result)

    def _fail(self, frame: Frame, error: Exception) -> None:
        source = self._sources[frame.source]
        source.failed += 1
        if source.failed <= _MOST_REPORTED:
            report(error, f"{frame.source}, frame {frame.index}")
        if source.failed == _MOST_REPORTED:
            print(f"{printable(frame.source)}: further failures are only counted", file=sys.stderr)

    def _end_sources(self, sources: Sources) -> None:
        for name, state in sources.states().items():
            source = self._sources[name]
            if state.losses and not source.state.losses:
                print(f"{printable(name)}: {printable(state.reason)}; it is opened again", file=sys.stderr)
            source.state = state
            if not state.is_done or state.waiting or source.running:
                continue
            sources.remove(name)
            self._ended += 1
            if self._save is not None and state.state == "ended" and not source.failed:
                self._delivery.call("files", partial(self._complete, name))

    def _complete(self, name: str) -> None:
        is_whole = self._save is not None and not self._save.has_failed(name)
        if self._save is not None and is_whole and not self._delivery.states()["files"].dropped:
            self._save.complete(name)

    def report(self, delivery: Delivery) -> int:
        """Print what each source gave and what failed; return the exit status."""
        for name, source in self._sources.items():
            if self._prints:
                print(
                    json_of(
                        {
                            "source": name,
                            "state": source.state.state,
                            "reason": source.state.reason,
                            "frames": source.frames,
                            "failed": source.failed,
                            "dropped": source.state.dropped,
                            "refused": source.state.refused,
                            "losses": source.state.losses,
                        }
                    )
                )
            else:
                print("\n".join([f"{printable(name)}:", *(f"  {line}" for line in source.lines())]))
        for node, stats in self._pipe.stats().items():
            if left_out := ", ".join(f"{name}: {stats.counters[name]}" for name in _LEFT_OUT if name in stats.counters):
                print(f"left out by {printable(node)}: {left_out}", file=sys.stderr)
        for name in self._skipped:
            print(f"{printable(name)}: complete since an earlier run", file=sys.stderr)
        bad = Counter(source.state.state for source in self._sources.values())["failed"]
        for name, state in delivery.states().items():
            if state.failed or (name == "files" and state.dropped):
                print(
                    f"error: {name}: {state.failed} results failed, {state.dropped} dropped: {state.reason}",
                    file=sys.stderr,
                )
                bad += 1
        return 1 if bad or any(source.failed for source in self._sources.values()) else 0
