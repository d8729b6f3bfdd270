"""The SQL of the page "Record a timeline", and its answers by SQLite, and by the engine of Perfetto if it is there."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT
from hami_tools.trace.file import TraceFile, read_trace

PAGE = ROOT / "hami-core" / "docs" / "howto" / "record-a-timeline.md"
QUERIES = [block.split("```")[0] for block in PAGE.read_text("utf-8").split("```sql\n")[1:]]


def answers(engine: str, file: Path) -> list[list[dict[str, Any]]]:
    """Return the rows that answer each question of the page; without its engine, skip the test."""
    if engine == "sqlite":
        with contextlib.closing(_in_sqlite(read_trace(file))) as tables:
            return [[dict(row) for row in tables.execute(query)] for query in QUERIES]
    api = pytest.importorskip("perfetto.trace_processor", reason="the package perfetto is not installed")
    program = os.environ.get("TRACE_PROCESSOR")
    if program is None:
        pytest.skip("set TRACE_PROCESSOR to the program trace_processor_shell of Perfetto")
    processor = api.TraceProcessor(trace=str(file), config=api.TraceProcessorConfig(bin_path=program))
    with contextlib.closing(processor):
        faults = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
        assert [vars(row) for row in processor.query(faults)] == []
        return [[vars(row) for row in processor.query(query)] for query in QUERIES]


def _in_sqlite(trace: TraceFile) -> sqlite3.Connection:
    """Return the tables and the function of Perfetto that the page uses, in the SQL engine that Perfetto is made of."""
    values = [each.values for each in trace.slices]
    tables = sqlite3.connect(":memory:")
    tables.row_factory = sqlite3.Row
    tables.create_function("EXTRACT_ARG", 2, lambda number, key: values[number].get(key.removeprefix("debug.")))
    tables.execute("CREATE TABLE slice (ts, dur, name, category, track_id, arg_set_id)")
    tables.execute("CREATE TABLE thread_track (id, utid)")
    tables.execute("CREATE TABLE thread (utid, tid, name)")
    for number, each in enumerate(trace.slices):
        row = (each.start, each.duration or 0, each.name, each.category, each.track, number)
        tables.execute("INSERT INTO slice VALUES (?, ?, ?, ?, CAST(? AS TEXT), ?)", (*row[:4], str(row[4]), row[5]))
    for number, track in trace.tracks.items():
        if track.thread is not None:
            tables.execute("INSERT INTO thread_track VALUES (?, ?)", (str(number), track.thread))
            tables.execute("INSERT INTO thread VALUES (?, ?, ?)", (track.thread, track.thread, track.name))
    return tables
