"""Converts a trace to the JSON of Chrome's trace event format, and to files of TensorBoard."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hami import ConfigError

from hami_tools.trace.file import Slice, TraceFile, Track

NS_PER_US = 1e3
NS_PER_MS = 1e6
NS_PER_S = 10**9


def write_chrome(trace: TraceFile, path: str | Path, operators: Sequence[dict[str, Any]] = ()) -> None:
    """Write the trace event format, which chrome://tracing, Perfetto and TensorBoard's profile plug-ins read.

    Slices of threads are complete events, requests are asynchronous events, and flows connect a request with its
    batches. Times are in microseconds.

    Args:
        trace: the timeline.
        path: of the file to write.
        operators: events of `read_profile`, which are shown inside the batches of their threads.
    """
    events = sorted((*_chrome_events(trace), *operators), key=lambda event: event.get("ts", 0.0))
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")


def _chrome_events(trace: TraceFile) -> Iterator[dict[str, Any]]:
    for process, name in trace.processes.items():
        yield _metadata(process, process, "process_name", name)
    for track in trace.tracks.values():
        if track.thread is not None:
            yield _metadata(track.process, track.thread, "thread_name", track.name)
    started: set[int] = set()
    for each in sorted(trace.slices, key=lambda one: one.start):
        track = trace.tracks.get(each.track, Track("", next(iter(trace.processes), 0)))
        place = {"pid": track.process, "tid": track.thread or track.process, "ts": each.start / NS_PER_US}
        common = {"name": each.name, "cat": each.category or "hami", **place, "args": each.values}
        if track.thread is None and each.duration is not None:
            end = {"ts": (each.start + each.duration) / NS_PER_US}
            yield {**common, "ph": "b", "id": hex(each.track)}
            yield {**common, **end, "ph": "e", "id": hex(each.track)}
            continue
        yield {**common, "ph": "i", "s": "t"} if each.duration is None else _complete(common, each.duration)
        for flow in each.flows:
            # "s" begins a flow, "t" is a step of it; both bind to the slice around them. A number above 2^53, which has
            # a process above 32768, would lose its last bits in JavaScript.
            yield {"name": "request", "cat": "flow", "ph": "t" if flow in started else "s", "id": hex(flow), **place}
            started.add(flow)


def _metadata(process: int, thread: int, kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


def _complete(common: dict[str, Any], duration: int) -> dict[str, Any]:
    return {**common, "ph": "X", "dur": duration / NS_PER_US}


def series_of(trace: TraceFile) -> dict[str, list[tuple[int, float]]]:
    """Return the moments in nanoseconds and values of each quantity of a trace.

    Latencies of requests, times in the queue and of batches of each node, and times of each backend are in
    milliseconds; batch sizes in items.
    """
    series: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)

    def add(name: str, each: Slice, value: float) -> None:
        series[name].append((each.start + (each.duration or 0), value))

    for each in trace.of("request"):
        add("latency_ms", each, (each.duration or 0) / NS_PER_MS)
    for each in trace.of("queue"):
        add(f"queue_ms/{each.values.get('node', '')}", each, (each.duration or 0) / NS_PER_MS)
    for each in trace.of("batch"):
        if "batch" in each.values:
            add(f"batch_ms/{each.values.get('node', '')}", each, (each.duration or 0) / NS_PER_MS)
            add(f"batch_size/{each.values.get('node', '')}", each, float(each.values.get("items", 0)))
    for each in trace.of("backend"):
        add(f"backend_ms/{each.name}", each, (each.duration or 0) / NS_PER_MS)
    return dict(series)


def write_tensorboard(trace: TraceFile, folder: str | Path, operators: Sequence[dict[str, Any]] = ()) -> None:
    """Write the mean of each quantity in each second as scalars, all its values as a histogram, and a trace.

    A step is a second of the trace. The scalar `requests_per_second` counts the requests that ended in that second.

    Raises:
        ConfigError: The package `tensorboard` is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise ConfigError("--tensorboard needs the package tensorboard; run: pip install tensorboard") from None
    Path(folder).mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    try:
        for step, summary in _summaries(trace):
            writer.add_event(Event(step=step, summary=summary))
    finally:
        writer.close()
    write_chrome(trace, Path(folder) / "hami.pt.trace.json", operators)


def _summaries(trace: TraceFile) -> Iterator[tuple[int, Any]]:
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    series = series_of(trace)
    began = min((each.start for each in trace.slices), default=0)
    for name, values in series.items():
        seconds: defaultdict[int, list[float]] = defaultdict(list)
        for moment, value in values:
            seconds[(moment - began) // NS_PER_S].append(value)
        for second, found in sorted(seconds.items()):
            scalars = [Summary.Value(tag=name, simple_value=sum(found) / len(found))]
            if name == "latency_ms":
                scalars.append(Summary.Value(tag="requests_per_second", simple_value=float(len(found))))
            yield second, Summary(value=scalars)
        yield max(seconds), Summary(value=[Summary.Value(tag=f"{name}/all", histo=_histogram([v for _, v in values]))])


def _histogram(values: list[float], buckets: int = 30) -> Any:
    from tensorboard.compat.proto.summary_pb2 import HistogramProto  # pyright: ignore[reportAttributeAccessIssue]

    low, high = min(values), max(values)
    width = (high - low) / buckets or 1.0
    counts = [0.0] * buckets
    for value in values:
        counts[min(int((value - low) / width), buckets - 1)] += 1
    return HistogramProto(
        min=low,
        max=high,
        num=len(values),
        sum=sum(values),
        sum_squares=sum(value * value for value in values),
        bucket_limit=[low + width * (number + 1) for number in range(buckets)],
        bucket=counts,
    )
