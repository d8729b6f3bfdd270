"""Merges a configuration with those that it extends: other files, or packaged pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hami._config.document import Document, Entry, document_of
from hami._config.files import File, Location, content_of, on_disk, packaged, parse
from hami._config.pipelines import pipeline_of
from hami._config.problems import Problems, got, show
from hami._config.values import Values
from hami._errors import ConfigError, Error

MAX_CHAIN = 50  # files that extend each other


def document_with_bases(data: Mapping[Any, Any], file: File | None, problems: Problems) -> Document:
    """Return the document of a file, or of a dict if `file` is None, merged with all that it extends.

    Raises an error with all problems if one of the files cannot be read: the others have no meaning without it.
    """
    merger = _Merger(problems)
    document = merger.document(data, file, [file.location] if file else [])
    if merger.failed:
        raise ConfigError.of(problems)
    return document


class _Merger:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.failed = False
        self.read: dict[str, Document] = {}  # by identity: two files may extend the same one

    def document(self, data: Mapping[Any, Any], file: File | None, chain: list[Location]) -> Document:
        own = document_of(data, self.problems, *file.origin) if file else document_of(data, self.problems)
        entry = own.top.pop("extends", None)
        if entry is None:
            return own
        merged = Document()
        for name in self.names(entry):
            base = self.base(name, entry, file.location if file else on_disk(""), chain)
            merged = base.over(merged) if base else merged
        return own.over(merged)

    def names(self, entry: Entry) -> list[Any]:
        """Return the names that `extends` lists, with environment variables resolved."""
        values = Values({"": {"extends": entry}}, self.problems)
        value = values.value("", "extends")
        if values.unknown:
            self.failed = True
            return []
        names = value if isinstance(value, list) else [value]
        valid = [name for name in names if isinstance(name, str) and name]
        for name in names:
            if name not in valid:
                self.problem(
                    f'extends takes a file such as "base.toml", or a list of files, got {got(name)}', entry, name
                )
        return valid

    def base(self, name: str, entry: Entry, own: Location, chain: list[Location]) -> Document | None:
        """Return the document that the file `own` extends by this name; None if there was a problem."""
        try:
            if name.endswith(".toml"):
                location = own.sibling(name)
                pipeline = None
            else:
                pipeline = pipeline_of(name)
                location = packaged(pipeline)
            if location.identity in self.read:
                return self.read[location.identity]
            if self.is_cycle(location, entry, name, chain):
                return None
            content = content_of(location, pipeline)
        except Error as error:
            self.problem(getattr(error, "headline", str(error)), entry, name, getattr(error, "hint", ""))
            return None
        try:
            file = parse(content, location)
        except ConfigError as error:  # its message contains the place
            self.problems.append(error)
            self.failed = True
            return None
        document = self.document(file.data, file, [*chain, location])
        self.read[location.identity] = document
        return document

    def is_cycle(self, location: Location, entry: Entry, name: str, chain: list[Location]) -> bool:
        for index, other in enumerate(chain):
            if other.identity == location.identity:
                cycle = " -> ".join(step.label for step in [*chain[index:], location])
                self.problem(f'"{other.label}" extends itself: {cycle}', entry, name)
                return True
        if len(chain) >= MAX_CHAIN:
            self.problem(f"more than {MAX_CHAIN} files extend each other", entry, name)
        return len(chain) >= MAX_CHAIN

    def problem(self, headline: str, entry: Entry, name: object, hint: str = "") -> None:
        """Add a problem with one of the names."""
        self.failed = True
        self.problems.add(headline, "extends", entry.value, place=entry.place, at=show(name), hint=hint)
