"""ported_backend.hpp: the page "Port a C++ backend", and the values that a ported class gets and sets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import hami
import hami.native
import numpy as np
import pytest

import hami_torchpipe

PAGE = Path(__file__).parents[3] / "hami-core" / "docs" / "howto" / "port-a-cpp-backend.md"  # needs a checkout
KINDS = r"""
class Kinds : public ipipe::SingleBackend {
  void forward(ipipe::dict item) override {
    const auto is = [&](const char* key, const std::type_info& type) { return item->at(key).type() == type; };
    const bool same = is("flag", typeid(bool)) && is("small", typeid(int)) && is("large", typeid(std::int64_t)) &&
                      is("part", typeid(float)) && is("text", typeid(std::string)) && is("none", typeid(hami::Value)) &&
                      is("items", typeid(std::vector<ipipe::any>)) && is("array", typeid(hami::Tensor)) &&
                      is("entries", typeid(std::unordered_map<std::string, ipipe::any>));
    (*item)[ipipe::TASK_RESULT_KEY] = same;
    (*item)["numbers"] = std::vector<float>{0.5F, 2};
    (*item)["small"] = 8U;
    if (item->count("odd")) (*item)["odd"] = std::make_shared<int>(1);
  }
};
IPIPE_PORT(Kinds, "PortedKinds", "order|color: str = 'a;b:'; list: list = 'a,b'", "Checks values.");
"""


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compile the class of the page, and one that checks values; return the names that the library registers."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler: CXX is not set, and neither g++ nor clang++ is installed")
    folder = tmp_path_factory.mktemp("ported")
    code = re.findall(r"^```cpp\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0]
    (folder / "repeat.cpp").write_text(code + KINDS)
    installed = Path(hami.native.get_include())
    headers = installed if installed.is_dir() else PAGE.parents[2] / "include"  # of a build in the checkout
    folders = [f"-I{headers}", f"-I{hami_torchpipe.get_include()}"]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(
        [*compiler.split(), *flags, *folders, folder / "repeat.cpp", "-o", folder / "librepeat.so"],
        check=True,
        timeout=300,
    )
    return hami.native.register_plugin(folder / "librepeat.so")


def test_the_class_of_the_page_runs_in_batches(ported: list[str]) -> None:
    assert ported == ["Repeat", "PortedKinds"]
    with hami.pipe({"backend": "S[Repeat(times=3),Repeat]"}) as pipe:
        requests = pipe([{"data": text} for text in ("a", b"b", "c", "d")], timeout=30)
    assert [request["result"] for request in requests] == [b"aaaaaa", b"bbbbbb", b"cccccc", b"dddddd"]
    assert all(1 <= request["batch"] <= 4 for request in requests)


def test_init_that_returns_false_is_an_error_of_the_pipe(ported: list[str]) -> None:
    with pytest.raises(hami.Error, match="Repeat: init returned false"):
        hami.pipe("Repeat(times=0)")


def test_values_keep_their_kinds_and_untouched_keys_their_values(ported: list[str]) -> None:
    array, text = np.arange(6.0).reshape(2, 3), "päge"
    request = {
        "data": 1,
        "flag": True,
        "small": 7,
        "large": 1 << 40,
        "part": 0.25,
        "text": text,
        "none": None,
        "items": [1, [b"x"]],
        "entries": {"a": 1},
        "array": array,
    }
    with hami.pipe("PortedKinds") as pipe:
        answer = pipe(request, timeout=30)
        assert answer["result"] is True
        assert (answer["text"], answer["none"], answer["small"]) == (text, None, 8)
        assert answer["array"] is array
        assert answer["numbers"] == [0.5, 2.0]
        assert (answer["items"], answer["entries"]) == ([1, [b"x"]], {"a": 1})
        with pytest.raises(hami.DataTypeError, match='the value under "odd" has the C\\+\\+ type'):
            pipe({**request, "flag": True, "odd": 1}, timeout=30)
