"""The result of a benchmark as a web page in one file. It loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hami_tools.bench.tables import Rows, causes_of, ceiling_rows, comparison_lines, point_rows, scenario_lines
from hami_tools.figures import figure
from hami_tools.graph.graph import Graph
from hami_tools.graph.html import POLICY, STYLE
from hami_tools.graph.svg import escaped
from hami_tools.graph.svg import render as picture

TABLES = """
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: 0.2rem 0.8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8c959f; }
th:first-child, td:first-child { text-align: left; }
meter { width: 12rem; }
"""


def page(found: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        found: The result, as `hami bench --json` prints it.
    """
    title = f"Benchmark of {escaped(found['source'])}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{STYLE}{TABLES}</style>
</head>
<body>
<h1>{title}</h1>
{_list(found["explanation"])}
{_list(scenario_lines(found))}
{_list(comparison_lines(found) if "ratios" in found else ())}
<h2>Loads</h2>
{_table("Loads", *_rows(point_rows(found["points"], found.get("slo_s"))))}
{"".join(_losses(found))}
<h2>Pipeline</h2>
<figure tabindex="0" aria-label="Picture of the pipeline with its statistics">
{picture(Graph.from_description(found["description"], found["stats"]))}
</figure>
</body>
</html>
"""


def _losses(found: Mapping[str, Any]) -> Iterator[str]:
    if not found.get("losses"):
        return
    ceiling = found["ceilings"][0]
    yield f"<h2>Ceiling: {figure(ceiling['throughput'])} per second</h2>\n"
    yield f"<p>Plateau batch {figure(ceiling['plateau_batch'])}.</p>\n"
    yield _table("Batches of the slowest node alone", *_rows(ceiling_rows(ceiling)))
    for entry in found["losses"]:
        parts = [(entry["achieved"], "achieved"), *causes_of(entry)]
        rows = [_meter(value, text, entry["ceiling"]) for value, text in parts]
        load, header = escaped(entry["load"]), _row(("cause", "per second", "of the ceiling"), "th")
        yield f"\n<h3>{load}</h3>\n{_table(f'Losses of {load}', header, *rows)}"


def _meter(value: float, text: str, ceiling: float) -> str:
    share = value / ceiling
    bar = f'<meter min="0" max="1" value="{min(1.0, max(0.0, share)):.3f}">{share:.0%}</meter>'
    return f"<tr><td>{escaped(text)}</td><td>{figure(value)}</td><td>{share:.0%} {bar}</td></tr>\n"


def _rows(rows: Rows) -> list[str]:
    body, header = rows
    return [_row(header, "th"), *(_row(row, "td") for row in body)]


def _table(label: str, *rows: str) -> str:
    """Return a table that scrolls on its own if the window is narrow, also with the keyboard."""
    return f'<figure tabindex="0" aria-label="{label}"><table>\n{"".join(rows)}</table></figure>\n'


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escaped(cell)}</{tag}>' for cell in cells)}</tr>\n"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(line.strip())}</li>\n" for line in lines)
    return f"<ul>\n{items}</ul>" if items else ""
