"""Every function in src/ort_api.hpp is at its index in the installed onnxruntime, and does what its name says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

from hami_onnx._runtime import find_library, version

ctypes = pytest.importorskip("ctypes", reason="Python was built without libffi")

HEADER = (Path(__file__).parent.parent / "src" / "ort_api.hpp").read_text()
FUNCTIONS = {name: int(index) for index, name in re.findall(r"^  F\((\d+), [\w* ]+, (\w+),", HEADER, re.MULTILINE)}
PROVIDER_FUNCTIONS = [name for name, index in FUNCTIONS.items() if 300 < index < 400]
ASSIGNMENT_FUNCTIONS = [name for name, index in FUNCTIONS.items() if index > 400]
(PROVIDER_API_VERSION,) = re.findall(r"kProviderApiVersion = (\d+)", HEADER)
(ASSIGNMENT_API_VERSION,) = re.findall(r"kAssignmentApiVersion = (\d+)", HEADER)
(API_VERSION,) = re.findall(r"kApiVersion = (\d+)", HEADER)


class Api:
    """Calls functions by name, and notes which were called."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(find_library()))
        library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, get_version = library.OrtGetApiBase()[:2]
        self.version = ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)().decode()
        self.minor = int(self.version.split(".")[1])
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(int(API_VERSION))
        self._table = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        self.called: set[str] = set()

    def raw(self, name, *arguments, result=ctypes.c_void_p):
        self.called.add(name)
        return ctypes.CFUNCTYPE(result, *map(type, arguments))(self._table[FUNCTIONS[name]])(*arguments)

    def message(self, name, *arguments) -> str:
        """Call a function, and return the message of its status; "" for success."""
        status = self.raw(name, *arguments)
        if status is None:
            return ""
        text = self.raw("GetErrorMessage", ctypes.c_void_p(status), result=ctypes.c_char_p).decode()
        self.raw("ReleaseStatus", ctypes.c_void_p(status), result=None)
        return text

    def do(self, name, *arguments) -> None:
        assert self.message(name, *arguments) == ""

    def get(self, name, *arguments, kind=ctypes.c_void_p):
        """Call a function whose last argument is where it writes its result."""
        out = kind()
        self.do(name, *arguments, ctypes.cast(ctypes.byref(out), ctypes.c_void_p))
        return out

    def text(self, name, object) -> str:
        return self.raw(name, object, result=ctypes.c_char_p).decode()

    def free(self, name, object) -> None:
        self.raw(name, object, result=None)


def size(number: int):
    return ctypes.c_size_t(number)


def texts(*names: bytes):
    return ctypes.cast((ctypes.c_char_p * len(names))(*names), ctypes.c_void_p)


@pytest.fixture
def model(tmp_path):
    """y = x + bias, where bias is an initializer that a caller may replace."""
    node = helper.make_node("Add", ["x", "bias"], ["y"])
    ports = {"x": (TensorProto.FLOAT, ["rows", 2]), "bias": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT, None)}
    return save(tmp_path / "bias.onnx", [node], *ports, {"bias": np.float32([10, 20])})


def test_every_function_of_the_list_is_at_its_index(model):
    api = Api()
    assert api.version == version()
    env = api.get("CreateEnv", ctypes.c_int(3), ctypes.c_char_p(b"test"))
    api.do("DisableTelemetryEvents", env)
    allocator = api.get("GetAllocatorWithDefaultOptions")
    cpu = api.get("CreateCpuMemoryInfo", ctypes.c_int(0), ctypes.c_int(0))

    options = api.get("CreateSessionOptions")
    api.do("SetIntraOpNumThreads", options, ctypes.c_int(1))
    api.do("SetSessionLogSeverityLevel", options, ctypes.c_int(4))
    api.do("DisableCpuMemArena", options)
    api.do("DisableMemPattern", options)
    api.do("AddSessionConfigEntry", options, ctypes.c_char_p(b"session.dynamic_block_base"), ctypes.c_char_p(b"4"))
    api.do("EnableProfiling", options, ctypes.c_char_p(str(model.with_name("profile")).encode()))
    missing = api.message("RegisterCustomOpsLibrary_V2", options, ctypes.c_char_p(b"/none/operators.so"))
    assert "operators.so" in missing
    none = (ctypes.c_void_p * 1)()
    nowhere = ctypes.cast(none, ctypes.c_void_p)
    assert "none.onnx" in api.message("CreateSession", env, ctypes.c_char_p(b"/none.onnx"), options, nowhere)
    content = model.read_bytes()
    in_memory = api.get("CreateSessionFromArray", env, ctypes.c_char_p(content), size(len(content)), options)
    api.free("ReleaseSession", in_memory)
    session = api.get("CreateSession", env, ctypes.c_char_p(str(model).encode()), options)
    api.free("ReleaseSessionOptions", options)

    ports = {}
    for kind, name in (("Input", "x"), ("Output", "y"), ("OverridableInitializer", "bias")):
        assert api.get(f"SessionGet{kind}Count", session, kind=ctypes.c_size_t).value == 1
        text = api.get(f"SessionGet{kind}Name", session, size(0), allocator)
        assert ctypes.cast(text, ctypes.c_char_p).value == name.encode()
        api.do("AllocatorFree", allocator, text)
        info = api.get(f"SessionGet{kind}TypeInfo", session, size(0))
        assert api.get("GetOnnxTypeFromTypeInfo", info, kind=ctypes.c_int).value == 1  # a tensor
        tensor = api.get("CastTypeInfoToTensorInfo", info)
        ports[name] = described(api, tensor)
        api.free("ReleaseTypeInfo", info)
    assert ports == {"x": (1, [-1, 2], ["rows", ""]), "y": (1, [-1, 2], ["rows", ""]), "bias": (1, [2], [""])}

    run_options = api.get("CreateRunOptions")
    api.do("RunOptionsSetRunLogSeverityLevel", run_options, ctypes.c_int(4))
    shrinks = ctypes.c_char_p(b"memory.enable_memory_arena_shrinkage")
    api.do("AddRunConfigEntry", run_options, shrinks, ctypes.c_char_p(b""))
    given = np.float32([[1, 2], [3, 4], [5, 6]])
    shape = (ctypes.c_int64 * 2)(*given.shape)
    x = api.get(
        "CreateTensorWithDataAsOrtValue",
        cpu,
        ctypes.c_void_p(given.ctypes.data),
        size(given.nbytes),
        ctypes.cast(shape, ctypes.c_void_p),
        size(2),
        ctypes.c_int(1),
    )
    inputs = (ctypes.c_void_p * 1)(x.value)
    inputs = ctypes.cast(inputs, ctypes.c_void_p)
    run = (session, run_options, texts(b"x"), inputs, size(1), texts(b"y"), size(1))
    api.do("RunOptionsSetTerminate", run_options)
    assert "terminate flag" in api.message("Run", *run, nowhere)
    api.do("RunOptionsUnsetTerminate", run_options)
    y = api.get("Run", *run)
    api.free("ReleaseRunOptions", run_options)
    shown = api.get("GetTensorTypeAndShape", y)
    assert described(api, shown)[:2] == (1, [3, 2])
    api.free("ReleaseTensorTypeAndShapeInfo", shown)
    data = api.get("GetTensorMutableData", y)
    result = np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), (3, 2))
    assert result.tolist() == (given + np.float32([10, 20])).tolist()
    for value in (x, y):
        api.free("ReleaseValue", value)
    assert api.get("SessionGetProfilingStartTimeNs", session, kind=ctypes.c_uint64).value > 0
    written = api.get("SessionEndProfiling", session, allocator)
    assert b"model_run" in Path(ctypes.cast(written, ctypes.c_char_p).value.decode()).read_bytes()
    api.do("AllocatorFree", allocator, written)
    api.free("ReleaseSession", session)
    assert api.called == set(FUNCTIONS) - set(PROVIDER_FUNCTIONS) - set(ASSIGNMENT_FUNCTIONS)


@pytest.fixture
def api():
    api = Api()
    if api.minor < int(PROVIDER_API_VERSION):
        pytest.skip(f"onnxruntime {api.version} has no execution providers that are libraries of their own")
    return api


def test_every_function_for_providers_is_at_its_index(api, model):
    env = api.get("CreateEnv", ctypes.c_int(3), ctypes.c_char_p(b"test"))
    nothing = (ctypes.c_char_p(b"none"), ctypes.c_char_p(b"/none/provider.so"))
    assert "provider.so" in api.message("RegisterExecutionProviderLibrary", env, *nothing)
    count = ctypes.c_size_t()
    devices = ctypes.c_void_p()
    out = [ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in (devices, count)]
    api.do("GetEpDevices", env, *out)
    (device, *_) = ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[: count.value]
    device = ctypes.c_void_p(device)
    assert api.text("EpDevice_EpName", device) == "CPUExecutionProvider"
    assert api.text("EpDevice_EpVendor", device) == "Microsoft"
    hardware = ctypes.c_void_p(api.raw("EpDevice_Device", device))
    assert api.raw("HardwareDevice_Type", hardware, result=ctypes.c_int) == 0  # a CPU
    assert api.text("HardwareDevice_Vendor", hardware)

    options = api.get("CreateSessionOptions")
    records = ctypes.c_char_p(b"session.record_ep_graph_assignment_info")
    api.do("AddSessionConfigEntry", options, records, ctypes.c_char_p(b"1"))
    no_texts = texts()
    one = ctypes.cast((ctypes.c_void_p * 1)(device.value), ctypes.c_void_p)
    api.do("SessionOptionsAppendExecutionProvider_V2", options, env, one, size(1), no_texts, no_texts, size(0))
    content = model.read_bytes()
    in_memory = api.get("CreateSessionFromArray", env, ctypes.c_char_p(content), size(len(content)), options)
    api.free("ReleaseSession", in_memory)
    session = api.get("CreateSession", env, ctypes.c_char_p(str(model).encode()), options)
    expected = set(PROVIDER_FUNCTIONS)
    if api.minor >= int(ASSIGNMENT_API_VERSION):
        assert assigned_operators(api, session) == [("CPUExecutionProvider", ["Add"])]
        expected |= set(ASSIGNMENT_FUNCTIONS)
    assert expected <= api.called


def assigned_operators(api, session):
    found = []
    for part in listed(api, "Session_GetEpGraphAssignmentInfo", session):
        name = ctypes.cast(api.get("EpAssignedSubgraph_GetEpName", part), ctypes.c_char_p).value.decode()
        nodes = listed(api, "EpAssignedSubgraph_GetNodes", part)
        kinds = [ctypes.cast(api.get("EpAssignedNode_GetOperatorType", node), ctypes.c_char_p) for node in nodes]
        found.append((name, [kind.value.decode() for kind in kinds]))
    return found


def listed(api, name, object):
    """Call a function whose last arguments are where it writes an array and its length."""
    array, count = ctypes.c_void_p(), ctypes.c_size_t()
    api.do(name, object, *(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in (array, count)))
    return [ctypes.c_void_p(each) for each in ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))[: count.value]]


def described(api, info):
    """Return the element type, the shape and the names of the axes of a tensor."""
    axes = api.get("GetDimensionsCount", info, kind=ctypes.c_size_t).value
    shape, names = (ctypes.c_int64 * axes)(), (ctypes.c_char_p * axes)()
    api.do("GetDimensions", info, ctypes.cast(shape, ctypes.c_void_p), size(axes))
    api.do("GetSymbolicDimensions", info, ctypes.cast(names, ctypes.c_void_p), size(axes))
    kind = api.get("GetTensorElementType", info, kind=ctypes.c_int).value
    return kind, list(shape), [name.decode() for name in names]
