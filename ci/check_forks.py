#!/usr/bin/env python3
"""Find locks of modules that stay locked in a child process that was forked while another thread held them.

Usage: ci/check_forks.py [ROOT]. Prints one line per lock that no fork handler replaces, and exits 1 if there is any

A lock of a module or of a class body lives as long as the process, and so in each forked child: a thread that does not
exist in the child may hold it. A handler of `os.register_at_fork` in the same module has to name it. The same holds for
objects of classes that make locks, which are found by their names. A handler that binds a new object to the name
reaches no module that imports the name. A comment `# fork: …` in its line says why another lock needs no handler.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Queue", "SimpleQueue"}
LOCKS |= {"LifoQueue", "PriorityQueue", "ThreadPoolExecutor"}


def files(root: Path) -> Iterator[Path]:
    """Yield the modules that users run."""
    for folder in (root / "hami-core", *sorted((root / "hami-plugins").glob("*"))):
        yield from sorted((folder / "python").rglob("*.py"))


def called(value: ast.AST) -> str:
    """Return the name of what an expression calls, or a field of a dataclass; empty for other expressions."""
    function: ast.AST | None = value.func if isinstance(value, ast.Call) else None
    if isinstance(value, ast.keyword) and value.arg == "default_factory":
        function = value.value
    return getattr(function, "id", getattr(function, "attr", ""))


def assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, int]]:
    """Yield the names that statements bind, the values and the lines; also those of class bodies and conditions."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((t.id, statement.value, t.lineno) for t in targets if isinstance(t, ast.Name))
        elif isinstance(statement, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from assigned(statement.body)


def classes_with_locks(trees: list[ast.Module]) -> set[str]:
    """Return the names of the classes whose objects are or have locks, those of threading included."""
    made = {
        node.name: {called(call) for call in ast.walk(node)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(LOCKS)
    while more := {name for name, calls in made.items() if calls & found} - found:
        found |= more
    return found


def handled(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names that the fork handlers of a module mention, and those that they bind again."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == "register_at_fork"]
    handlers = [keyword.value for call in calls for keyword in call.keywords]
    names = {node.id for handler in handlers for node in ast.walk(handler) if isinstance(node, ast.Name)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    inside = [node for function in functions for node in ast.walk(function)]
    bound = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
    return names | bound | {node.id for node in inside if isinstance(node, ast.Name)}, bound


def violations(root: Path) -> list[str]:
    texts = {path: path.read_text(encoding="utf-8") for path in files(root)}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    makers = classes_with_locks(list(trees.values()))
    imported = {
        (node.module.rpartition(".")[2], name.name): path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }
    found = []
    for path, tree in trees.items():
        mentioned, bound = handled(tree)
        for name, value, line in assigned(tree.body):
            if called(value) not in makers or "# fork: " in texts[path].splitlines()[line - 1]:
                continue
            what = f"{path.relative_to(root)}:{line}: {name}"
            if name not in mentioned:
                found.append(f"{what} may be locked in a forked child: replace it by os.register_at_fork")
            elif name in bound and (path.stem, name) in imported:
                importer = imported[path.stem, name].relative_to(root)
                found.append(f"{what} has a new object in a forked child, but not in {importer}: reset the object")
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    found = violations(root)
    print("\n".join(found) or "every lock of a module is unlocked in a forked child")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
