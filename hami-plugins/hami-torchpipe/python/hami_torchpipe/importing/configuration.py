"""import_torchpipe: describes a configuration of torchpipe, of the v0 line or 0.2, as a configuration of HAMi."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from hami import ConfigError
from hami.config import parse_toml

from hami_torchpipe.importing.translation import Node, translate, translated_keys

Keys = dict[str, Any]

# Keys of the file, not of a node: what receives the requests, and what the program did at its start.
_FILE_KEYS = {
    "Interpreter::env": "set up `logging` in the program; the environment variable HAMI_LOG is the level",
    "register_config": "pass the values as keys of [global]",
}
_DISPATCHERS = {"PipelineV3", "BaselineSchedule", "Schedule", "ScheduleV3", "Batching", "Instances", "DagDispatcher"}
_SCHEDULERS = ("scheduler", "Interpreter::backend", "PipelineV3::backend", "PhysicalView::backend")
_NO_SCHEDULER = {
    "SortSchedule": "batches are formed by arrival; give similar requests to one node, one node for each class of size",
    "ScoreSchedule": "batches are formed by arrival; a request has a priority",
    "Ring": "a loop is LoopCondition in an expression",
    "EventLoop": "a loop is LoopCondition in an expression",
}
_LOOP = "a loop is LoopCondition in an expression"
# Punctuation of Chinese input methods, and what TOML and expressions take.
_FULL_WIDTH = {chr(ord(each) + 0xFEE0): each for each in ",:;=[]()"}
_FULL_WIDTH |= {"\u3010": "[", "\u3011": "]", "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_JUMPS = re.compile("Jump|MapReduce|PipelineReviser")  # the backends with a key `jump`
_TASK_KEY = re.compile(r"\bTASK_(\w+)_KEY\b")
_OWN_SCHEDULER = "leave it out: `max` and `batching_timeout` form batches, and `node_entrypoint` composes a scheduler"
_TASK_KEYS = {"BOX": "_box", "INFO": "_info", "STACK": "_stack", "EVENT": "event", "DEFAULT_NAME": "_default_node_name"}
_MAPPED = re.compile(r"\s*([^\[\],\s]*)\s*\[([^\[\]]*)\]\s*(?:,|$)")

_STATUS = {
    "skip": "Skip",
    "serialskip": "SerialSkip",
    "subgraphskip": "SubGraphSkip",
    "break": "Break",
    "error": "Error",
    "run": "Run",
    "continue": "Run",
    "or": "or",
    "else": "or",
    "swap": "swap",
}


@dataclass
class Imported:
    """What `import_torchpipe` found.

    Attributes:
        top: the keys above the first table.
        nodes: the keys of each node, by its name.
        notes: one text for each thing that is not mapped, with the nearest equivalent.
    """

    top: Keys = field(default_factory=dict)
    nodes: dict[str, Keys] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def config(self) -> dict[str, Any]:
        """Return what `hami.pipe` takes."""
        return {**self.top, **self.nodes}

    def toml(self) -> str:
        """Return the file, with the notes as comments at its top."""
        lines = [f"# not mapped: {' '.join(note.split())}" for note in self.notes]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in self.top.items()]
        for name, keys in self.nodes.items():
            lines += ["", f"[{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in keys.items())]
        return "\n".join(lines).lstrip("\n") + "\n"


def import_torchpipe(file: str | Path, *, cpu: bool = False) -> Imported:
    """Describe a configuration of torchpipe for `hami.pipe`.

    >>> from pathlib import Path
    >>> _ = Path("old.toml").write_text('[a]\\nnext = "b"\\n[b]\\nfilter = "or"\\nbackend = "cvtColorMat"\\n')
    >>> hami_torchpipe.import_torchpipe("old.toml").nodes
    {'a': {'backend': 'Identity', 'next': 'b'}, 'b': {'backend': 'CvtColorMat', 'or': True}}

    Args:
        file: A TOML file. Comments are not kept.
        cpu: Replace the backends that need a GPU by those of hami-image and hami-onnx.

    Raises:
        ConfigError: The file is not valid TOML, an expression in it cannot be read, or its nodes form a cycle.
        OSError: The file cannot be read.
    """
    try:
        text = Path(file).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f'"{file}" is not in UTF-8: {error}; if it has Chinese comments, write it again with '
            "iconv -f GB18030 -t UTF-8"
        ) from error
    try:
        read = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f'"{file}" is not valid TOML: {error}{_advice(text, str(error))}') from error
    return _Import(read, cpu).result


def _advice(text: str, problem: str) -> str:
    """Return what to write in the line that an error names, if it has other than ASCII where TOML takes only that."""
    found = re.search(r"at line (\d+)", problem)
    line = text.splitlines()[int(found[1]) - 1 : int(found[1])] if found else []
    if not line or line[0].isascii():
        return ""
    if wide := next((each for each in line[0] if each in _FULL_WIDTH), ""):
        return f"; outside comments, write {_FULL_WIDTH[wide]} in place of {wide}"
    return '; names other than in ASCII are in quotes, as in ["解码"]'


class _Import:
    """One import: reads the tables, then rewrites each node."""

    def __init__(self, read: Mapping[str, Any], cpu: bool) -> None:
        self.result = Imported()
        self._cpu = cpu
        self._globals: Keys = {}
        self._nodes: dict[str, Keys] = {}
        self._shared: dict[str, str] = {}  # the node whose instances a node uses
        self._read(read)
        self._check_names()
        self._name_sources()
        self._apply_filters()
        self._has_boxes = "_box" in json.dumps(self._nodes, default=str)
        for name, keys in self._nodes.items():
            self.result.nodes[name] = self._node(name, keys)
        self._set_globals()

    # ---- reading

    def _read(self, read: Mapping[str, Any]) -> None:
        self._globals = {key: _plain(value) for key, value in read.items() if not isinstance(value, Mapping)}
        tables = {name: table for name, table in read.items() if isinstance(table, Mapping)}
        self._globals |= {key: _plain(value) for key, value in tables.pop("global", {}).items()}
        if not tables and self._globals:
            tables = {"default": self._globals}
            self._globals = {}
        for name, table in tables.items():
            self._read_table(name, table, "")
        if not self._nodes:
            raise ConfigError("the file has no node: it has no table, and no key above one")

    def _read_table(self, name: str, table: Mapping[str, Any], owner: str) -> None:
        """Read a node, and the tables in it: `[rec.2]` is a node that uses the instances of `rec`."""
        own = {key: _plain(value) for key, value in table.items() if not isinstance(value, Mapping)}
        inside = {key: value for key, value in table.items() if isinstance(value, Mapping)}
        if own or not inside:
            self._nodes[name] = own
            if owner:
                self._shared[name] = owner
        for key, value in inside.items():
            self._read_table(_node_name(f"{name}.{key}"), value, owner or name)

    def _check_names(self) -> None:
        for name, keys in self._nodes.items():
            if borrowed := keys.pop("borrow_from", None):
                self._shared[name] = _node_name(borrowed)
            if "next" in keys:
                keys["next"] = ",".join(_node_name(each) for each in _names(keys["next"]))
        for name, owner in self._shared.items():
            if owner not in self._nodes:
                raise ConfigError(
                    f'the node "{name}" uses the instances of "{owner}", which the file does not have; '
                    f"its nodes are {', '.join(self._nodes)}"
                )
        if cycle := _cycle({name: [owner] for name, owner in self._shared.items()}):
            raise ConfigError(f"the nodes {cycle} borrow from each other; write `backend` for one, without borrow_from")
        after = {name: _names(keys.get("next", "")) for name, keys in self._nodes.items()}
        jumps = {
            name: [_node_name(each) for each in _names(str(keys.get("jump", "")).replace("|", ","))]
            for name, keys in self._nodes.items()
            if _JUMPS.search(str(keys))
        }
        for key, targets in (("next", after), ("jump", jumps)):
            for name, following in targets.items():
                if unknown := [each for each in following if each not in self._nodes]:
                    raise ConfigError(
                        f'the node "{name}" has {key} = "{unknown[0]}", which the file does not have; '
                        f"its nodes are {', '.join(self._nodes)}"
                    )
        if cycle := _cycle(after):
            raise ConfigError(f"the nodes {cycle} follow each other in a cycle; {_LOOP}")
        if cycle := _cycle({name: [*after[name], *jumps.get(name, ())] for name in after}):
            self._note("", f"the nodes {cycle} jump in a cycle, where each waits for the next; {_LOOP}")

    def _name_sources(self) -> None:
        """Write the node before each bracket of `map`; torchpipe lets it out where only one node comes before."""
        for name, keys in self._nodes.items():
            if "map" not in keys:
                continue
            text = str(keys["map"])
            found = list(_MAPPED.finditer(text))
            if "".join(each[0] for each in found) != text.lstrip() or not found:
                raise ConfigError(
                    f'the node "{name}" has map = "{text}"; expected "node[key:key, …], …", as in "detect[result:data]"'
                )
            before = self._before(name)
            parts = []
            for source, pairs in (each.groups() for each in found):
                if not source and len(before) != 1:
                    self._note(name, f"`map` names no node, and {', '.join(before) or 'no node'} comes before it")
                source = _node_name(source) if source else (before or [name])[0]
                kept = [pair.split(":") for pair in pairs.replace(" ", "").split(",") if pair]
                # A node begins without `result`: torchpipe removes what `map` writes there.
                texts = [":".join(pair) for pair in kept if pair[-1] != "result"]
                parts += [f"{source}[{','.join(texts)}]"] if texts else []
            keys["map"] = ",".join(parts)

    # ---- conditions

    def _before(self, name: str) -> list[str]:
        return [each for each, keys in self._nodes.items() if name in _names(keys.get("next", ""))]

    def _apply_filters(self) -> None:
        for name, keys in list(self._nodes.items()):
            if "filter" not in keys or name not in self._nodes or not self._is_v0_filter(keys["filter"]):
                continue
            given = str(keys.pop("filter"))
            status = _STATUS.get(given.lower().replace("_", ""), "")
            if not self._before(name) and status != "Run":
                self._note(name, f'filter = "{given}" of a first node, which torchpipe refuses too')
            elif status == "or":
                keys["or"] = True
            elif status in ("Skip", "SerialSkip", "SubGraphSkip"):
                for each in self._skipped(name, status):
                    self._pass_on(each)
            elif status == "Break":
                self._break(name)
            elif status == "Error":
                keys["backend"] = "Raise('the filter of this node is Error')"
            elif status == "Run" and "map" not in keys:
                self._note(name, 'filter = "Run" keeps `data` of the node before; here `map` names what a node takes')
            elif status == "swap" and "map" in keys:
                self._note(name, 'filter = "swap" beside `map`; write data where `map` has result')
            elif not status:
                keys["filter"] = given
                self._note(
                    name,
                    f'filter = "{given}" is one of your own: register a backend {given} that sets `result` to True '
                    "where the node runs",
                )

    def _is_v0_filter(self, value: Any) -> bool:
        return isinstance(value, str) and "[" not in value and "(" not in value

    def _pass_on(self, name: str) -> None:
        kept = ("next", "map")
        self._nodes[name] = {key: value for key, value in self._nodes[name].items() if key in kept}
        self._nodes[name]["backend"] = "Identity"
        self._shared.pop(name, None)

    def _skipped(self, name: str, status: str) -> list[str]:
        """Return the nodes that a filter skips: one, the longest chain, or the largest graph that only it leads to."""
        skipped = [name]
        if status == "Skip":
            return skipped
        for each in skipped:
            following = _names(self._nodes[each].get("next", ""))
            if status == "SerialSkip" and len(following) != 1:
                break
            skipped += [
                node for node in following if node not in skipped and all(one in skipped for one in self._before(node))
            ]
        return skipped

    def _break(self, name: str) -> None:
        """End the graph at a node, where no other branch runs."""
        if any(len(_names(keys.get("next", ""))) > 1 for keys in self._nodes.values()):
            self._note(
                name,
                'filter = "Break" in a graph with branches: the other branches run here; '
                "Filter[CONDITION, BACKEND, Skip] ends one branch",
            )
            self._pass_on(name)
            return
        after = _names(self._nodes[name].get("next", ""))
        self._pass_on(name)
        del self._nodes[name]["next"]
        while after:
            each = after.pop()
            after += _names(self._nodes.pop(each, {}).get("next", ""))
            self._note(each, f'left out: the node "{name}" before it has filter = "Break"')

    # ---- nodes

    def _node(self, name: str, keys: Keys) -> Keys:
        if owner := self._shared.get(name):
            kept: Keys = {key: keys[key] for key in ("next", "map", "or", "filter") if key in keys}
            return {"backend": f"Forward[node.{owner}]", **kept}
        for key in _SCHEDULERS:
            self._scheduler(name, keys.pop(key, None))
        if "node_entrypoint" in keys and "backend" not in keys:
            return keys
        for each in sorted(_FULL_WIDTH.keys() & set(_QUOTED.sub("", str(keys.get("backend", ""))))):
            raise ConfigError(
                f'the node "{name}" has backend = "{keys["backend"]}"; write {_FULL_WIDTH[each]} in place of {each}'
            )
        expression = str(keys.get("backend", self._globals.get("backend", "Identity"))).strip() or "Identity"
        node = Node(name, {**keys, "backend": expression}, self._globals, self._cpu, self._has_boxes)
        translated = translate(node)
        self.result.notes += node.notes
        return translated

    def _scheduler(self, name: str, given: Any) -> None:
        scheduler = str(given or "").partition("[")[0]
        if scheduler and scheduler not in _DISPATCHERS:
            nearest = _NO_SCHEDULER.get(scheduler, _OWN_SCHEDULER)
            self._note(name, f'the scheduler "{scheduler}"; {nearest}')

    def _set_globals(self) -> None:
        for key in _SCHEDULERS:
            self._scheduler("", self._globals.pop(key, None))
        self._globals.pop("backend", None)
        for key, nearest in _FILE_KEYS.items():
            if self._globals.pop(key, None) is not None:
                self._note("", f"`{key}`; {nearest}")
        for key in [key for key in self._globals if key.startswith(("Logger::", "FileLogger::", "SpdLogger::"))]:
            del self._globals[key]
            self._note("", f"`{key}`; set up `logging` in the program")
        node = Node("", self._globals, {}, self._cpu)
        self.result.top = translated_keys(node, set())
        self.result.notes += node.notes

    def _note(self, name: str, text: str) -> None:
        self.result.notes.append(f"{name}: {text}" if name else text)


def _plain(value: Any) -> Any:
    """Return a value of a key with the names of `TASK_…_KEY` in it written out."""
    if not isinstance(value, str):
        return value
    return _TASK_KEY.sub(lambda found: _TASK_KEYS.get(found[1], found[1].lower()), value)


def _cycle(after: Mapping[str, list[str]]) -> str:
    """Return nodes that lead to each other, as a -> b -> a; empty if there are none."""
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


def _names(value: Any) -> list[str]:
    parts = value if isinstance(value, list) else str(value).split(",")
    return [part.strip() for part in parts if part.strip()]


def _node_name(name: str) -> str:
    return name.strip().replace(".", "-")


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)
