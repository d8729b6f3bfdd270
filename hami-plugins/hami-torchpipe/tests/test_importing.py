"""import_torchpipe: configurations of torchpipe v0 and 0.2 run after the import.

The files in v0/ have the structure of public examples of torchpipe: classification with a decoder for the GPU and one
for the CPU, detection with two classifiers for each box, and text recognition with jumps and a shared node.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import cv2
import hami
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hami_torchpipe
from hami_torchpipe import replacements
from hami_torchpipe.importing.expressions import parse

V0 = Path(__file__).parent / "v0"
CLASSES = 3  # the channels of an image


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with net.onnx, which returns the mean of each channel, and detect.onnx, an identity."""
    folder = tmp_path_factory.mktemp("models")
    for name, side, nodes, shape in (
        (
            "net",
            32,
            [
                helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
                helper.make_node("Flatten", ["mean"], ["y"], axis=1),
            ],
            ["n", CLASSES],
        ),
        ("detect", 64, [helper.make_node("Identity", ["x"], ["y"])], ["n", 3, 64, 64]),
    ):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, side, side])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(nodes, name, [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / f"{name}.onnx")
    return folder


def run_imported(name: str, models: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Import a file, write it beside the models, and run a request with the file that was written."""
    file = models / f"{name}.hami.toml"
    file.write_text(hami_torchpipe.import_torchpipe(V0 / f"{name}.toml", cpu=True).toml(), "utf-8")
    with hami.pipe(file) as pipe:
        return pipe(request, timeout=30)


def coloured(channel: int) -> np.ndarray[Any, Any]:
    """Return an image H x W x C whose largest channel, in the order BGR, is this one."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[..., channel] = 200
    return image


def jpeg(image: np.ndarray[Any, Any]) -> bytes:
    return cv2.imencode(".jpg", image)[1].tobytes()


def test_a_classifier_with_a_decoder_for_each_device_runs_after_the_import(models: Path) -> None:
    answer = run_imported("classify", models, {"data": jpeg(coloured(2))})
    scores = hami.to_numpy(answer["result"])
    assert scores.shape == (1, CLASSES)
    assert scores.argmax() == 0  # red is the first channel of rgb
    assert scores[0, 0] == pytest.approx((200 - 123.675) / 58.395, abs=0.1)


def test_a_detector_with_two_classifiers_for_each_box_runs_after_the_import(models: Path) -> None:
    @hami.register
    class PostProcBoxes(hami.Backend):
        net_h: int
        net_w: int

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                assert hami.to_numpy(item["data"]).shape == (1, 3, self.net_h, self.net_w)
                item["_box"] = [[0, 0, 20, 20], [20, 0, 60, 40], [0, 0, 60, 40]]
                item["result"] = item["data"]

    @hami.register
    class filter_score(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["score"] > 0.5

    answer = run_imported("boxes", models, {"data": jpeg(coloured(0)), "node_name": "jpg_decoder"})
    assert answer["result"] == [2, 2, 2]  # blue is the last channel of rgb
    assert answer["first"] == [2, 2, 2]
    assert [len(answer[key]) for key in ("score_1", "score_2")] == [3, 3]
    assert all(0.5 < score <= 1 for score in answer["score_1"])


def test_a_recognizer_with_jumps_and_a_shared_node_runs_after_the_import(models: Path) -> None:
    @hami.register
    class lines(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["_box"] = [[0, 0, 30, 40], [30, 0, 60, 40]]
                item["result"] = item["data"]

    @hami.register
    class AlignLines(hami.Backend):
        most: Annotated[int, hami.types.Key("max")]

        def forward(self, batch: list[Any]) -> None:
            assert self.most == 32
            for item in batch:
                item["result"] = item["data"]

    image = np.concatenate([coloured(1)[:, :30], coloured(2)[:, 30:]], axis=1)
    tensor = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
    answer = run_imported("lines", models, {"data": tensor, "node_name": "decode"})
    assert answer["result"] == [1, 2]
    assert [score > 0.9 for score in answer["score"]] == [True, True]


def imported(text: str, tmp_path: Path, *, cpu: bool = False) -> hami_torchpipe.Imported:
    file = tmp_path / "old.toml"
    file.write_text(text, "utf-8")
    return hami_torchpipe.import_torchpipe(file, cpu=cpu)


CHAIN = (
    '[a]\nnext = "b"\n[b]\nfilter = "{}"\nbackend = "B"\nnext = "c"\n'
    '[c]\nbackend = "C"\nnext = "d"\n[d]\nbackend = "D"\n'
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("or", {"a": "Identity", "b": "B", "c": "C", "d": "D"}),
        ("swap", {"a": "Identity", "b": "B", "c": "C", "d": "D"}),
        ("Skip", {"a": "Identity", "b": "Identity", "c": "C", "d": "D"}),
        ("SerialSkip", {"a": "Identity", "b": "Identity", "c": "Identity", "d": "Identity"}),
        ("subgraph_skip", {"a": "Identity", "b": "Identity", "c": "Identity", "d": "Identity"}),
        ("Break", {"a": "Identity", "b": "Identity"}),
        ("Error", {"a": "Identity", "b": "Raise('the filter of this node is Error')", "c": "C", "d": "D"}),
    ],
)
def test_each_built_in_filter_of_a_node_has_a_form_here(status: str, expected: dict[str, str], tmp_path: Path) -> None:
    found = imported(CHAIN.format(status), tmp_path)
    assert {name: keys["backend"] for name, keys in found.nodes.items()} == expected
    assert ("or" in found.nodes["b"]) == (status == "or")
    assert "filter" not in found.nodes["b"]


def test_a_serial_skip_ends_where_branches_meet(tmp_path: Path) -> None:
    text = (
        '[r]\nnext = "a,b"\n[a]\nfilter = "SerialSkip"\nbackend = "A"\nnext = "a2"\n[a2]\nbackend = "A"\nnext = "end"\n'
        '[b]\nbackend = "B"\nnext = "end"\n[end]\nbackend = "E"\nmap = "a2[result:data],b[result:other]"\n'
    )
    found = imported(text, tmp_path)
    assert [keys["backend"] for keys in found.nodes.values()] == ["Identity", "Identity", "Identity", "B", "E"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("S[A,(or)S[B,C],(swap)D]", "S[A,(or)S[B,C],D]"),
        ("Sequential[A,(Skip)B,C]", "S[A,C]"),
        ("Sequential[A,(Break)B,C]", "A"),
        ("S[(Run)A,(result2other)B]", "S[A,CopyKey(data,other),B]"),
        ("S[A,(mine)B]", "S[A,Filter[mine,B]]"),
        ("Torch[S[A,cvtColorTensor]]", "SyncTensor[S[A,CvtColorTensor]]"),
        ("S[ThreadCacher[FakeInstances[TensorrtTensor]],SyncTensor]", "S[TensorrtTensor,SyncTensor]"),
        ("S[DecodeMat,Mat2Tensor]", "S[DecodeMat,Mat2Tensor,GpuTensor]"),
        ("Add[restart:a,b:c=d]", "Add(restart=a,b='c=d')"),
        ("S[A,rm[x,y],mv[p:q]]", "S[A,Remove(x,y),CopyKey(p,q),Remove(p)]"),
        ("Tuple[A,B]", "List[A,B]"),
        ("HasKey(key=restart)[Identity,A]", "HasKey(key=restart)[Identity,A]"),
        ("IoC[A(x=1);B]", "IoC[A(x=1);B]"),
    ],
)
def test_expressions_are_rewritten(old: str, new: str, tmp_path: Path) -> None:
    assert imported(f"[n]\nbackend = {json.dumps(old)}\n", tmp_path).nodes["n"]["backend"] == new


def test_keys_of_torchpipe_become_keys_of_hami(tmp_path: Path) -> None:
    text = (
        '[n]\nbackend = "SyncTensor"\n"SyncTensor::backend" = "TensorrtTensor"\n"TensorrtTensor::max" = 4\n'
        "max_workspace_size = 1024\ndevice_id = 1\n"
        'max = "4x3x8x8"\nmin = "1x3x8x8"\nqueue_max = 3\nscheduler = "Batching"\n'
    )
    found = imported(text, tmp_path)
    assert found.nodes["n"] == {
        "backend": "SyncTensor[TensorrtTensor]",
        "TensorrtTensor.max": 4,
        "workspace": "1024MiB",
        "device": "cuda:1",
        "max": 4,
        "Onnx2Tensorrt.max": "4x3x8x8",
        "Onnx2Tensorrt.min": "1x3x8x8",
        "max_queue_size": 3,
    }
    assert found.notes == []


def test_what_is_not_mapped_is_named_with_the_nearest_equivalent(tmp_path: Path) -> None:
    text = (
        '"Interpreter::env" = "Logger"\n"Logger::path" = "/tmp/log"\n'
        '[n]\nbackend = "S[Own,AlignMat]"\nscheduler = "SortSchedule"\n"precision::fp32" = "Softmax"\n'
    )
    found = imported(text, tmp_path)
    assert [note.partition(":")[0] for note in found.notes] == ["n"] * 4 + ["`Interpreter", "`Logger"]
    assert found.notes[0].startswith('n: the scheduler "SortSchedule"; batches are formed by arrival')
    assert found.notes[1] == "n: Own is a backend of your own: register a class of that name"
    assert found.notes[2] == f"n: AlignMat: {replacements.BACKENDS['AlignMat']}"
    assert found.toml().count("# not mapped: ") == len(found.notes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[a]\nnext = "b"\n[b]\nnext = "a"\n', "follow each other in a cycle"),
        ('[a]\nnext = "c"\n', 'the node "a" has next = "c", which the file does not have'),
        ('[a]\nbackend = "MapReduce"\njump = "c"\n', 'the node "a" has jump = "c", which the file does not have'),
        ('[a]\nborrow_from = "c"\n', 'uses the instances of "c"'),
        ('[a]\nborrow_from = "b"\n[b]\nborrow_from = "a"\n', "the nodes a -> b -> a borrow from each other"),
        (
            "[a]  # 先解码\uff0c再缩放\nbackend = \u201cIdentity\u201d\n",
            'is not valid TOML: .*line 2.* write " in place of \u201c',
        ),
        ('[a]\nbackend = "S[Identity\uff0cIdentity]"  # 顺序\n', "; write , in place of \uff0c"),
        ("[解码]\n", 'names other than in ASCII are in quotes, as in ["解码"]'),
        ('[a]\nbackend = "S[A"\n', 'has the end where "]" is expected'),
        ('[a]\nbackend = "S[A,]"\n', "']' where a name is expected"),
        ('[a]\nmap = "b"\n', 'has map = "b"; expected'),
        ('[a]\nbackend = "Jump"\n', "without the key `jump`"),
        ("a = [\n", "is not valid TOML"),
        (".".join("a" * 50_000) + " = 1", "a key must have fewer than 100 dots"),
        ("", "has no node"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_with_the_reason(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(hami.ConfigError, match=problem.replace("[", r"\[").replace("`", ".")):
        imported(text, tmp_path)


def test_a_file_in_the_encoding_of_chinese_windows_is_refused_with_the_command(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('# 注释\n[n]\nbackend = "Own"\n', "gb18030")
    with pytest.raises(hami.ConfigError, match="write it again with iconv -f GB18030 -t UTF-8"):
        hami_torchpipe.import_torchpipe(file)


def test_loops_and_schedulers_that_hami_does_not_have_are_named_with_what_to_write(tmp_path: Path) -> None:
    text = (
        '# 识别\uff1a先检测\uff0c再循环\n[det]  # 检测\nbackend = "Jump"\njump = "again"\n'
        '[again]\nbackend = "S[Identity,Jump]"  # 回到检测\njump = "det"\nscheduler = "FancySchedule"\n'
        '[own]\nbackend = "Raise(\'错误\uff0c停止\')"\njump = "high"\n'
    )
    notes = imported(text, tmp_path).notes
    assert notes[0].startswith("the nodes det -> again -> det jump in a cycle, where each")
    assert notes[1].startswith('again: the scheduler "FancySchedule"; leave it out: `max` and `batching_timeout`')


def test_a_deep_expression_is_refused() -> None:
    with pytest.raises(hami.ConfigError, match="nests more than 200"):
        parse("S[" * 300 + "A" + "]" * 300)


def test_the_command_prints_the_file_and_names_what_is_not_mapped(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('# 注释\n[n]\nbackend = "Own"\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hami", "import-torchpipe", file], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (
        0,
        "not mapped: n: Own is a backend of your own: register a class of that name\n",
    )
    assert done.stdout.endswith('\n\n[n]\nbackend = "Own"\n')


def test_the_example_of_the_migration_page_is_what_the_import_writes(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "hami-core" / "docs" / "howto" / "from-torchpipe.md"  # needs a checkout
    section = page.read_text("utf-8").partition("## Import a configuration")[2]
    old, new = re.findall(r"^```(?:toml|console)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[:2]
    assert new == "$ hami import-torchpipe old.toml\n" + imported(old, tmp_path).toml()


def test_a_failed_part_fails_its_request_and_names_the_part(models: Path) -> None:
    @hami.register
    class Halves(hami.Backend):
        max = 4

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                if item["data"] % 2:
                    item.fail(ValueError(f"{item['data']} is odd"))
                else:
                    item["result"] = item["data"] // 2

    nodes = {
        "all": {"backend": "MapReduce(jump=half)"},
        "half": {"backend": "Halves", "next": "again"},
        "again": {"backend": "Halves"},
    }
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": [4, 8], "node_name": "all"}, timeout=30)["result"] == [1, 2]
        assert pipe({"data": [], "node_name": "all"}, timeout=30)["result"] == []
        with pytest.raises(ValueError, match="3 is odd"):
            pipe({"data": [4, 6], "node_name": "all"}, timeout=30)
        with pytest.raises(hami.DataTypeError, match='the list under the key "data", got int'):
            pipe({"data": 4, "node_name": "all"}, timeout=30)
