"""Expressions of the original design, which must work exactly as written.

Expressions with backends of GPU plugins run on substitutes for the CPU: same brackets, same data flow, arithmetic
instead of models. The last test runs without substitutes and checks that the errors name the missing plugins.
"""

from __future__ import annotations

import json
from typing import Any

import hami
import pytest
from hami import _core
from running import each, run_script

NODE_ENTRYPOINTS = [
    "IoC[InstancesRegister[BackgroundThread[Reflect[backend]]], "
    "Register[Block[Batching, InstanceDispatcher]];Forward[node.{node_name}]]",
    "IoC[InstancesRegister[BackgroundThread[BackendProxy]], "
    "Register[DI[Batching, InstanceDispatcher]]; Forward[node.{node_name}]]",
    "List[InstancesRegister[BackgroundThread[BackendProxy]], Register[Aspect[Batching, InstanceDispatcher]]]",
]
IN_REGISTER = [
    "IoC[InstanceDispatcher,Aspect[Batching, InstanceDispatcher];Aspect]",
    "StateFul[Batching, InstanceDispatcher]",
]
AFTER_INSTANCES = "List[InstancesRegister[Reflect[backend]], Register[{}]]"
TENSORRT = (
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]"
)
TENSORRT_ON_GPU = TENSORRT.replace("S[FixTensor,CatTensor]", "S[GpuTensor,CatTensor]")
BACKENDS = [
    TENSORRT,
    TENSORRT_ON_GPU,
    "SyncTensor[TensorrtTensor]",
    "Sequential[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]",
    "S[DecodeMat,ResizeMat]",
    "Reflect[key_to_cls_name, default=backend]",
    "Repost[Z, reply]",
]
EVERY = [*NODE_ENTRYPOINTS, *IN_REGISTER, *BACKENDS]

PRINTED = {
    NODE_ENTRYPOINTS[0]: "IoC[InstancesRegister[BackgroundThread[Reflect[backend]]],"
    "Register[Block[Batching,InstanceDispatcher]];Forward[node.{node_name}]]",
    IN_REGISTER[0]: "IoC[InstanceDispatcher,Aspect[Batching,InstanceDispatcher];Aspect]",
    TENSORRT: "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine],TensorrtInferTensor;"
    "CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]",
    BACKENDS[5]: "Reflect[key_to_cls_name,default=backend]",
}


LOADED: list[tuple[str, str]] = []  # pairs of loader and model
MADE: list[str] = []  # in the order of init calls


class Loads(hami.Backend):
    """Leaves an engine in the options of its instance."""

    model: str

    def init(self, options: dict[str, Any]) -> None:
        LOADED.append((type(self).__name__, self.model))
        options["engine"] = lambda rows: rows + len(rows)

    def forward(self, batch: list[Any]) -> None:
        raise AssertionError("a loader is not run")


class TensorrtInferTensor(hami.Backend):
    """Runs the engine that it finds in the options."""

    max = 4

    def init(self, options: dict[str, Any]) -> None:
        self.engine = options["engine"]

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.engine(hami.to_numpy(item["data"]))


class Notes(hami.Backend):
    """Appends its name to `data`."""

    def init(self, options: dict[str, Any]) -> None:
        MADE.append(type(self).__name__)

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            before = item["data"] if isinstance(item["data"], list) else []
            item["result"] = [*before, type(self).__name__]


class SyncTensor(Notes):
    """Runs its child, if there is one, and then synchronizes, like a stream."""

    child_count = (0, 1)

    def forward(self, batch: list[Any]) -> None:
        for child in self.children:
            child.forward(batch)
        for item in batch:
            item["result"] = [*(item["result"] if self.children else item["data"]), "sync"]


class ResizeMat(hami.Backend):
    width: int
    height: int

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = (item["data"], self.width, self.height)


@pytest.fixture
def substitutes() -> None:
    """Register CPU substitutes for backends of hami-trt, hami-torch and hami-image."""
    LOADED.clear()
    MADE.clear()
    for name in ("Onnx2Tensorrt", "LoadTensorrtEngine"):
        hami.register(name)(type(name, (Loads,), {}))
    for name in ("TensorrtTensor", "DecodeTensor", "ResizeTensor", "CvtColorTensor"):
        hami.register(name)(type(name, (Notes,), {}))
    for cls in (TensorrtInferTensor, SyncTensor, ResizeMat):
        hami.register(cls)
    each(lambda data: data, "GpuTensor", max=4)
    each(lambda data: data.decode(), "DecodeMat")


@pytest.fixture(autouse=True)
def _helpers() -> None:
    each(lambda data: -data, "TestNegate")

    @hami.register
    class TestRows(hami.Backend):
        """Returns `data` and the size of the batch."""

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = (item["data"], len(batch))


@pytest.mark.parametrize("text", EVERY)
def test_it_parses_and_prints_unchanged(text: str) -> None:
    printed = _core.print_expression(text)
    assert printed == PRINTED.get(text, text.replace(", ", ",").replace("; ", ";"))
    assert _core.parse_tree(printed) == _core.parse_tree(text)


@pytest.mark.parametrize("text", NODE_ENTRYPOINTS)
def test_as_a_node_entrypoint_it_creates_the_instances_and_forms_batches(text: str) -> None:
    with hami.pipe({"backend": "TestRows", "node_entrypoint": text, "instance_num": 2, "max": 4}) as pipe:
        requests = pipe([{"data": number} for number in range(8)])
        assert [request["result"] for request in requests] == [(number, 4) for number in range(8)]
        assert pipe.stats()["default"].batches == 2


@pytest.mark.parametrize("text", IN_REGISTER)
def test_inside_register_after_the_instances_it_forms_batches(text: str) -> None:
    """`Aspect` without brackets refers to the item of that name before the semicolon."""
    config = {"backend": "TestRows", "node_entrypoint": AFTER_INSTANCES.format(text), "max": 4}
    with hami.pipe(config) as pipe:
        requests = pipe([{"data": number, "req_id": number} for number in range(8)])
        assert [request["result"] for request in requests] == [(number, 4) for number in range(8)]
        assert pipe.stats()["default"].batches == 2


@pytest.mark.parametrize("text", [TENSORRT, TENSORRT_ON_GPU])
@pytest.mark.parametrize(("model", "loaded_by"), [("m.onnx", "Onnx2Tensorrt"), ("m.trt", "LoadTensorrtEngine")])
def test_an_engine_is_loaded_by_the_suffix_of_the_model_and_runs_batches(
    text: str, model: str, loaded_by: str, substitutes: None
) -> None:
    """The builder stores its engine in the options, and the inferer takes it from there."""
    numpy = pytest.importorskip("numpy", reason="the tensors of this test come from numpy")
    with hami.pipe({"backend": text, "model": model, "post_processor": "TestNegate"}) as pipe:
        given = [numpy.full((1, 2), number, numpy.float32) for number in range(4)]
        requests = pipe([{"data": data} for data in given])
    # The engine adds the number of rows of its batch.
    assert [hami.to_numpy(request["result"]).tolist() for request in requests] == [[[-n - 4, -n - 4]] for n in range(4)]
    assert [(loaded_by, model)] == LOADED


def test_without_a_post_processor_the_result_is_that_of_the_engine(substitutes: None) -> None:
    numpy = pytest.importorskip("numpy", reason="the tensors of this test come from numpy")
    with hami.pipe({"backend": TENSORRT, "model": "m.trt"}) as pipe:
        result = pipe({"data": numpy.ones((1, 2), numpy.float32)})["result"]
    assert hami.to_numpy(result).tolist() == [[2, 2]]


def test_a_sync_around_an_inferer_runs_after_it(substitutes: None) -> None:
    with hami.pipe("SyncTensor[TensorrtTensor]") as pipe:
        assert pipe({"data": 1})["result"] == ["TensorrtTensor", "sync"]


def test_a_sync_at_the_end_is_initialised_first_and_runs_last(substitutes: None) -> None:
    MADE.clear()
    with hami.pipe("Sequential[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]") as pipe:
        assert pipe({"data": 1})["result"] == ["DecodeTensor", "ResizeTensor", "CvtColorTensor", "sync"]
    assert MADE == ["SyncTensor", "CvtColorTensor", "ResizeTensor", "DecodeTensor"]


def test_images_are_decoded_and_resized(substitutes: None) -> None:
    """The tests of hami-image run this expression with the plugin itself."""
    with hami.pipe({"backend": "S[DecodeMat,ResizeMat]", "width": 3, "height": 2}) as pipe:
        assert pipe({"data": b"jpeg"})["result"] == ("jpeg", 3, 2)


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        ({"key_to_cls_name": "TestNegate"}, -5),
        ({}, 5),  # `backend` is a key of the node, with the value Identity
    ],
)
def test_a_key_or_the_default_contains_the_name_of_a_class(keys: dict[str, str], result: int) -> None:
    text = "Reflect[key_to_cls_name, default=backend]"
    entrypoint = f"List[InstancesRegister[{text}], Register[DI[Batching, InstanceDispatcher]]]"
    with hami.pipe({"backend": "Identity", "node_entrypoint": entrypoint, **keys}) as pipe:
        assert pipe({"data": 5})["result"] == result


def test_the_key_backend_may_not_be_its_own_default() -> None:
    with pytest.raises(hami.ConfigError, match='the expression under "backend" refers to itself'):
        hami.pipe({"backend": "Reflect[key_to_cls_name, default=backend]"})
    with hami.pipe({"backend": "Reflect[key_to_cls_name, default=backend]", "key_to_cls_name": "TestNegate"}) as pipe:
        assert pipe({"data": 5})["result"] == -5


def test_repost_sends_a_copy_to_z_and_the_reply_completes_an_event() -> None:
    nodes = {"a": {"backend": "Repost[Z, reply]"}, "Z": {"backend": "TestNegate"}}
    with hami.pipe(nodes) as pipe:
        request = pipe({"data": 5, "node_name": "a"})
        assert request["result"] == 5
        assert request["reply"].wait(60)
        assert request["reply"].value() == -5


NEEDED = {
    TENSORRT: {
        "hami-trt": ["Onnx2Tensorrt", "TensorrtInferTensor"],
        "hami-tensor": ["CatTensor", "ContiguousTensor", "FixTensor", "SplitTensor"],
    },
    TENSORRT_ON_GPU: {
        "hami-trt": ["Onnx2Tensorrt", "TensorrtInferTensor"],
        "hami-cuda": ["GpuTensor"],
        "hami-tensor": ["CatTensor", "ContiguousTensor", "SplitTensor"],
    },
    BACKENDS[2]: {"hami-cuda": ["SyncTensor"]},  # the content of its brackets is unknown without it
    BACKENDS[3]: {"hami-cuda": ["DecodeTensor", "ResizeTensor", "CvtColorTensor", "SyncTensor"]},
    BACKENDS[4]: {"hami-image": ["DecodeMat", "ResizeMat"]},
}
ALONE = """
import json, sys
import hami._plugins.manager
from hami import _core
from hami._config import load

sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]  # no plugin is installed there
texts = json.loads(sys.argv[1])
problems = [_core.check(load({"backend": text, "model": "m.onnx"})) for text in texts]
print(json.dumps([[str(problem) for problem in found] for found in problems]))
"""


def test_without_the_plugins_the_errors_name_the_missing_plugins() -> None:
    """Each missing name is reported once, and only for the branch of ModelLoader that is built."""
    done = run_script(ALONE, json.dumps(list(NEEDED)))
    assert done.returncode == 0, done.stderr
    for needed, problems in zip(NEEDED.values(), json.loads(done.stdout), strict=True):
        messages = [(problem.splitlines()[0], problem.splitlines()[-1].strip()) for problem in problems]
        assert sorted(messages) == sorted(
            (
                f'backend "{name}" not found',
                f"it is provided by {plugin}, which is not installed: pip install {plugin}",
            )
            for plugin, names in needed.items()
            for name in names
        )
