"""ci/check_layers.py: this repository passes, and each kind of dependency that does not point down is found."""

from __future__ import annotations

from pathlib import Path

import check_layers
import pytest

ROOT = Path(__file__).resolve().parents[2]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_this_repository_passes() -> None:
    assert check_layers.violations(ROOT) == []


def test_every_arrow_of_the_list_is_used_and_points_down() -> None:
    listed = {(room, other) for room, others in check_layers.ARROWS.items() for other in others}
    assert check_layers.arrows(ROOT) == listed
    order = list(check_layers.ARROWS)
    assert [(room, other) for room, other in listed if order.index(other) >= order.index(room)] == []


def test_dependencies_that_point_down_pass(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "hami-core/src/lang/api.hpp": '#include "lang/tree.hpp"\n',
            "hami-core/src/lang/tree.hpp": "#include <string>\n",
            "hami-core/src/pipe/api.hpp": "",
            "hami-core/src/pipe/pipe.cpp": '#include "lang/api.hpp"\n#include "pipe/api.hpp"\n#include "hami/abi.h"\n',
            "hami-core/python/bind/module.cpp": '#include "pipe/api.hpp"\n#include "gil.hpp"\n',
            "hami-core/python/bind/gil.hpp": "",
            "hami-core/python/hami/__init__.py": "from hami._runtime.pipe import Pipe\n",
            "hami-core/python/hami/_runtime/pipe.py": "from hami import _core\nfrom hami.observe.load import load\n",
            "hami-core/python/hami/_runtime/spans.py": "from hami._runtime.pipe import Pipe\n",
            "hami-core/python/hami/observe/__init__.py": "from hami._runtime.spans import opentelemetry\n",
            "hami-core/python/hami/observe/load.py": "from hami._config import load\n",
            "hami-core/python/hami/_config/__init__.py": "from hami._errors import Error\n",
            "hami-core/python/hami/_errors.py": "",
            "hami-plugins/hami-a/pyproject.toml": 'dependencies = ["hami-core", "hami-b"]\n',
            "hami-plugins/hami-a/python/hami_a/x.py": "import hami\nimport hami_a\nimport hami_b\n",
        },
    )
    assert check_layers.violations(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "hami-core/src/base/log.cpp",
            "#include <sstream>\n",
            "hami-core/src/base/log.cpp:1: the core includes <sstream>, which makes its wheel larger",
        ),
        (
            "hami-core/src/base/up.cpp",
            '// first\n#include "pipe/api.hpp"\n',
            'hami-core/src/base/up.cpp:2: room base includes "pipe/api.hpp"; it may use no other room',
        ),
        (
            "hami-core/src/pipe/near.cpp",
            '#include "pipe.hpp"\n',
            'hami-core/src/pipe/near.cpp:1: "pipe.hpp" is not a file of a room; write #include "room/file.hpp"',
        ),
        (
            "hami-core/src/extra/x.cpp",
            "",
            "hami-core/src/extra: unknown room; the rooms are base, value, sync, observe, lang, request, backend, "
            "registry, container, schedule, plugin, telemetry, pipe, bind",
        ),
        (
            "hami-core/src/container/sibling.cpp",
            '#include "plugin/api.hpp"\n',
            'hami-core/src/container/sibling.cpp:1: room container includes "plugin/api.hpp"; '
            "it may use request, backend, registry",
        ),
        (
            "hami-core/python/bind/inside.cpp",
            '#include "plugin/host.hpp"\n',
            'hami-core/python/bind/inside.cpp:1: room bind includes "plugin/host.hpp"; '
            'other rooms include only "plugin/api.hpp"',
        ),
        (
            "hami-core/include/hami/backend.hpp",
            '#include "pipe/pipe.hpp"\n',
            'hami-core/include/hami/backend.hpp:1: a public header includes "pipe/pipe.hpp"; only hami/… is allowed',
        ),
        (
            "hami-core/python/hami/_x.py",
            "def f():\n    import hami_onnx\n",
            "hami-core/python/hami/_x.py:2: the core imports hami_onnx, a plugin",
        ),
        (
            "hami-core/python/hami/_y.py",
            "import json\nimport numpy\n",
            "hami-core/python/hami/_y.py:2: the core needs numpy; it needs the standard library and pluggy",
        ),
        (
            "hami-plugins/hami-tools/python/hami_tools/x.py",
            "def f():\n    import numpy\n\n\nimport rich\n",
            "hami-plugins/hami-tools/python/hami_tools/x.py:5: hami-tools needs rich, which its pyproject.toml does "
            "not declare",
        ),
        (
            "hami-plugins/hami-tools/python/hami_tools/y.py",
            "from hami_a import _z\n",
            "hami-plugins/hami-tools/python/hami_tools/y.py:1: a plugin imports hami_a._z, which is private to hami_a",
        ),
        (
            "hami-core/python/hami/_config/x.py",
            "def f():\n    from hami._runtime import at_exit\n",
            "hami-core/python/hami/_config/x.py:2: hami._config.x imports hami._runtime.at_exit, which is above it",
        ),
        (
            "hami-core/python/hami/_runtime/at_exit.py",
            "if TYPE_CHECKING:\n    from hami._runtime.pipe import Pipe\n",
            "hami-core/python/hami: hami._runtime.at_exit imports hami._runtime.pipe imports hami._runtime.at_exit",
        ),
        (
            "hami-plugins/hami-a/python/hami_a/low.py",
            "from hami_a.room import high\n",
            "hami-plugins/hami-a/python/hami_a: hami_a.low imports hami_a.room imports hami_a.low",
        ),
        (
            "hami-plugins/hami-a/python/hami_a/x.py",
            "from hami import _core\n",
            "hami-plugins/hami-a/python/hami_a/x.py:1: a plugin imports hami._core, which is private; "
            "only the package hami is public",
        ),
        (
            "hami-plugins/hami-a/python/hami_a/x.py",
            "from hami_b import y\n",
            "hami-plugins/hami-a/python/hami_a/x.py:1: imports hami_b, which hami-plugins/hami-a/pyproject.toml "
            "does not declare",
        ),
        (
            "hami-plugins/hami-a/src/x.cpp",
            '#include "base/value.hpp"\n',
            'hami-plugins/hami-a/src/x.cpp:1: a plugin includes "base/value.hpp"; only <hami/…> is public',
        ),
    ],
)
def test_dependency_that_does_not_point_down_is_found(tmp_path: Path, file: str, text: str, message: str) -> None:
    write(
        tmp_path,
        {
            "hami-core/src/pipe/api.hpp": "",
            "hami-core/src/plugin/api.hpp": "",
            "hami-core/src/plugin/host.hpp": "",
            "hami-core/python/hami/_runtime/pipe.py": "from hami._runtime.at_exit import close_at_exit\n",
            "hami-core/python/hami/_runtime/at_exit.py": "",
            "hami-plugins/hami-a/pyproject.toml": 'dependencies = ["hami-core"]\n',
            "hami-plugins/hami-a/python/hami_a/__init__.py": "",
            "hami-plugins/hami-tools/pyproject.toml": 'dependencies = ["hami-a"]\n',
            "hami-plugins/hami-a/python/hami_a/low.py": "",
            "hami-plugins/hami-a/python/hami_a/room/high.py": "",
            "hami-plugins/hami-a/python/hami_a/room/user.py": "import hami_a.low\n",
            file: text,
        },
    )
    assert check_layers.violations(tmp_path) == [message]
    assert check_layers.main([str(tmp_path)]) == 1
