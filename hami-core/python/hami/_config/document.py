"""A configuration before references are resolved: every key has its value and its place in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hami._config.problems import Problems, got, name_of, of, quoted
from hami._text import is_text

SETTINGS = ("requires", "extends", "entrypoint", "dag_entrypoint")
RESERVED = ("global", "providers", *SETTINGS)
MAX_KEYS = 100_000  # of all files together, tables included; bounds the time that a mistake costs
MAX_DEPTH = 32  # of nested tables in a node; no backend needs more than two

Path = tuple[Any, ...]


class Entry(NamedTuple):
    """A value, its place, such as "pipeline.toml:7", and the folder of that file; both are "" without a file."""

    value: Any
    place: str = ""
    folder: str = ""


class Section:
    """The keys of a node, of [global] or of [providers]."""

    def __init__(self, place: str = "", entries: Mapping[str, Entry] | None = None) -> None:
        self.place = place
        self.entries: dict[str, Entry] = dict(entries or {})

    @property
    def begin(self) -> str:
        """The place of its header; of its first key if it has no header."""
        return self.place or next((entry.place for entry in self.entries.values() if entry.place), "")


class Document:
    """The content of one file or dict, or of several that were merged."""

    def __init__(self) -> None:
        self.top: dict[Any, Entry] = {}  # values that are not tables
        self.sections: dict[Any, Section] = {}
        self.files: list[str] = []  # the files that it was read from; the requested file is the last

    def over(self, base: Document) -> Document:
        """Return this document merged over another, tables key by key. For any other key, this one wins."""
        merged = Document()
        merged.files = [*base.files, *(file for file in self.files if file not in base.files)]
        merged.top = {key: entry for key, entry in base.top.items() if key not in self.sections} | self.top
        for name, section in base.sections.items():
            if name not in self.top:
                merged.sections[name] = Section(section.place, section.entries)
        for name, section in self.sections.items():
            target = merged.sections.setdefault(name, Section())
            target.place = section.place or target.place
            target.entries.update(section.entries)
        return merged

    @property
    def size(self) -> int:
        """The number of its keys and tables."""
        return len(self.top) + sum(1 + len(section.entries) for section in self.sections.values())

    @property
    def nodes(self) -> dict[Any, Section]:
        """The nodes by name. Without any table, the top-level keys are the node "default"."""
        tables = {name: section for name, section in self.sections.items() if name not in RESERVED}
        flat = {key: entry for key, entry in self.top.items() if key not in RESERVED}
        if tables or not flat:
            return tables
        self.sections["default"] = Section("", flat)
        for key in flat:
            del self.top[key]
        return {"default": self.sections["default"]}


def document_of(
    data: Mapping[Any, Any],
    problems: Problems,
    label: str = "",
    lines: Mapping[Path, int] | None = None,
    folder: str = "",
) -> Document:
    """Return the document of a dict. `lines` has the line of each key in the file `label` of `folder`."""
    return _DocumentBuilder(problems, label, lines or {}, folder).document(data)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


class _DocumentBuilder:
    def __init__(self, problems: Problems, label: str, lines: Mapping[Path, int], folder: str) -> None:
        self.problems = problems
        self.label = label
        self.lines = lines
        self.folder = folder

    def document(self, data: Mapping[Any, Any]) -> Document:
        document = Document()
        document.files = [self.label] if self.label else []
        for key, value in data.items():
            path = (key,)
            if not isinstance(value, Mapping) and not (isinstance(key, str) and is_text(key)):
                self.problems.add(f"the keys of a configuration must be text, got {got(key)}", place=self.place(path))
            elif _is_array_of_tables(value) and key not in RESERVED:
                headline = f"[[{key}]] is a list of tables, but a node is a single table"
                self.problems.add(headline, key, value, place=self.place(path), hint=f"write [{key}]")
                document.sections[key] = Section(self.header(path), self.keys(key, value[0]))
            elif not isinstance(value, Mapping) or key in SETTINGS:
                document.top[key] = Entry(value, self.place(path), self.folder)
            elif key == "providers":
                document.sections[key] = Section(self.header(path), self.providers(value))
            else:
                document.sections[key] = Section(self.header(path), self.keys(key, value))
        is_single_node = all(key in RESERVED for key in document.sections)
        self.rename_init("default" if is_single_node else "global", document.top)
        return document

    def providers(self, table: Mapping[Any, Any]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for name, package in table.items():
            place = self.place(("providers", name))
            if isinstance(name, str) and is_text(name):
                entries[name] = Entry(package, place, self.folder)
            else:
                self.problems.add(f"the keys of [providers] must be text, got {got(name)}", place=place)
        return entries

    def keys(self, section: Any, table: Mapping[Any, Any]) -> dict[str, Entry]:
        """Return the keys of one node: a key of the sub-table X as "X.key", and `init` as "node_entrypoint"."""
        entries: dict[str, Entry] = {}
        self.flatten(str(section), (section,), "", table, entries)
        self.rename_init(str(section), entries)
        return entries

    def flatten(
        self, section: str, path: Path, prefix: str, table: Mapping[Any, Any], entries: dict[str, Entry]
    ) -> None:
        if len(path) > MAX_DEPTH:
            self.problems.add(
                f"the tables of {name_of(section)} are nested more than {MAX_DEPTH} deep", place=self.place(path)
            )
            return
        for key, value in table.items():
            place, full = self.place((*path, key)), f"{prefix}{key}"
            if not isinstance(key, str) or not is_text(key):
                self.problems.add(f"the keys of {name_of(section)} must be text, got {got(key)}", place=place)
            elif isinstance(value, Mapping):
                self.flatten(section, (*path, key), f"{full}.", value, entries)
            elif full in entries:
                self.problems.add(
                    f"{quoted(full)}{of(section)} is given twice", full, value, section=section, place=place
                )
            else:
                entries[full] = Entry(value, place, self.folder)

    def rename_init(self, section: str, entries: dict[str, Entry]) -> None:
        """Replace `init` by "node_entrypoint"."""
        if "init" not in entries:
            return
        if "node_entrypoint" in entries:
            self.problems.add(
                f"{name_of(section)} has both init and node_entrypoint, which are the same key",
                "init",
                entries["init"].value,
                section=section,
                place=entries["init"].place,
                hint="remove one of them",
            )
        entries["node_entrypoint"] = entries.pop("init")

    def header(self, path: Path) -> str:
        """Return "file:line" of a table; empty if the file contains only keys or sub-tables of it."""
        return self.place(path) if path in self.lines else ""

    def place(self, path: Path) -> str:
        """Return "file:line" of a key, or of the nearest table around it that has a line; empty without a file."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.label}:{self.lines[path]}" if path else self.label
