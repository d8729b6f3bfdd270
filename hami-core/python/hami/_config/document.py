"""A configuration as it is written: every key with its value and place, files laid over one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hami._config.problems import Problems, got, is_text, name_of, of, quoted

SETTINGS = ("requires", "extends", "entrypoint", "dag_entrypoint")
RESERVED = ("global", "providers", *SETTINGS)
MAX_DEPTH = 32  # of tables in a node

Path = tuple[Any, ...]


class Entry(NamedTuple):
    """A value and its place: "pipeline.toml:7", or "" if it does not come from a file."""

    value: Any
    place: str = ""


class Section:
    """The keys of a node, of [global] or of [providers]."""

    def __init__(self, place: str = "", entries: Mapping[str, Entry] | None = None) -> None:
        self.place = place
        self.entries: dict[str, Entry] = dict(entries or {})

    @property
    def begin(self) -> str:
        """Where it begins: its header, or its first key where it has none."""
        return self.place or next((entry.place for entry in self.entries.values() if entry.place), "")


class Document:
    """What one file or dict says, or several laid over one another."""

    def __init__(self) -> None:
        self.top: dict[Any, Entry] = {}  # values that are not tables
        self.sections: dict[Any, Section] = {}
        self.files: list[str] = []  # the files it was read from, the requested one last

    def over(self, base: Document) -> Document:
        """Return both in one: tables are merged key by key, of anything else this one's stays."""
        merged = Document()
        merged.files = [*base.files, *(file for file in self.files if file not in base.files)]
        merged.top = {key: entry for key, entry in base.top.items() if key not in self.sections} | self.top
        for name, section in base.sections.items():
            if name not in self.top:
                merged.sections[name] = Section(section.place, section.entries)
        for name, section in self.sections.items():
            below = merged.sections.setdefault(name, Section())
            below.place = section.place or below.place
            below.entries.update(section.entries)
        return merged

    @property
    def nodes(self) -> dict[Any, Section]:
        """The nodes; keys outside of any table belong to one node called "default"."""
        tables = {name: section for name, section in self.sections.items() if name not in RESERVED}
        flat = {key: entry for key, entry in self.top.items() if key not in RESERVED}
        if tables or not flat:
            return tables
        self.sections["default"] = Section("", flat)
        for key in flat:
            del self.top[key]
        return {"default": self.sections["default"]}


def document_of(
    data: Mapping[Any, Any], problems: Problems, label: str = "", lines: Mapping[Path, int] | None = None
) -> Document:
    """Split a dict into sections. `lines`: the line of each key in the file that messages call `label`."""
    return _Taking(problems, label, lines or {}).document(data)


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


class _Taking:
    def __init__(self, problems: Problems, label: str, lines: Mapping[Path, int]) -> None:
        self.problems = problems
        self.label = label
        self.lines = lines

    def document(self, data: Mapping[Any, Any]) -> Document:
        made = Document()
        made.files = [self.label] if self.label else []
        for key, value in data.items():
            path = (key,)
            if not isinstance(value, Mapping) and not (isinstance(key, str) and is_text(key)):
                self.problems.add(f"a key is not text: {got(key)}", place=self.place(path))
            elif _is_array_of_tables(value) and key not in RESERVED:
                headline = f"[[{key}]] is a list of tables, and a node is one table"
                self.problems.add(headline, key, value, place=self.place(path), hint=f"write [{key}]")
                made.sections[key] = Section(self.header(path), self.keys(key, value[0]))
            elif not isinstance(value, Mapping) or key in SETTINGS:
                made.top[key] = Entry(value, self.place(path))
            elif key == "providers":
                entries = {name: Entry(one, self.place((*path, name))) for name, one in value.items()}
                made.sections[key] = Section(self.header(path), entries)
            else:
                made.sections[key] = Section(self.header(path), self.keys(key, value))
        flat = made.top if not any(key not in RESERVED for key in made.sections) else {}
        if any(key not in RESERVED for key in flat):
            self.rename_init("default", flat)
        return made

    def keys(self, section: Any, table: Mapping[Any, Any]) -> dict[str, Entry]:
        """Return the keys of one node, those of sub-tables as "X.key", `init` under its other name."""
        entries: dict[str, Entry] = {}
        self.flatten(str(section), (section,), "", table, entries)
        self.rename_init(str(section), entries)
        return entries

    def flatten(
        self, section: str, path: Path, prefix: str, table: Mapping[Any, Any], entries: dict[str, Entry]
    ) -> None:
        if len(path) > MAX_DEPTH:
            self.problems.add(
                f"{name_of(section)} has tables in tables, more than {MAX_DEPTH} deep", place=self.place(path)
            )
            return
        for key, value in table.items():
            place, full = self.place((*path, key)), f"{prefix}{key}"
            if not isinstance(key, str) or not is_text(key):
                self.problems.add(f"a key of {name_of(section)} is not text: {got(key)}", place=place)
            elif isinstance(value, Mapping):
                self.flatten(section, (*path, key), f"{full}.", value, entries)
            elif full in entries:
                self.problems.add(
                    f"{quoted(full)}{of(section)} is given twice", full, value, section=section, place=place
                )
            else:
                entries[full] = Entry(value, place)

    def rename_init(self, section: str, entries: dict[str, Entry]) -> None:
        if "init" not in entries:
            return
        if "node_entrypoint" in entries:
            self.problems.add(
                f"{name_of(section)} has init and node_entrypoint, which are the same key",
                "init",
                entries["init"].value,
                section=section,
                place=entries["init"].place,
                hint="remove one of them",
            )
        entries["node_entrypoint"] = entries.pop("init")

    def header(self, path: Path) -> str:
        """Return "file:line" of a table, "" if only keys or sub-tables of it are there."""
        return self.place(path) if path in self.lines else ""

    def place(self, path: Path) -> str:
        """Return "file:line" of a key, of the table around it where the key has none of its own, or ""."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.label}:{self.lines[path]}" if path else self.label
