"""Tensors between Python and the core: no copies in either direction, and errors for unsuitable objects."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

VERSIONED = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


def through(backend: str, data: Any) -> Any:
    with hami.pipe(backend) as pipe:
        return pipe({"data": data})["result"]


def refusal(backend: str, data: Any) -> str:
    with hami.pipe(backend) as pipe, pytest.raises(hami.DataTypeError) as raised:
        pipe({"data": data})
    return str(raised.value).split("\n")[0]


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class Exporter:
    """Exports an array through DLPack like a library that does not support the newer arguments."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Damaged:
    """Exports an array through a DLPack struct in which a field of 8 bytes is replaced."""

    SHAPE, DATA = 24, 0  # offsets of pointers in DLTensor

    def __init__(self, array: Any, offset: int, value: int) -> None:
        self.array = array
        self.offset = offset
        self.value = value

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_uint64.from_address(get(capsule, b"dltensor") + self.offset).value = self.value
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


# Import and export without a copy


def test_a_numpy_array_goes_in_and_out_without_a_copy() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = through("ContiguousTensor", array)
    assert type(result) is hami.Tensor
    assert address(hami.to_numpy(result)) == address(array)
    assert np.array_equal(hami.to_numpy(result), array)


def test_a_torch_tensor_goes_in_and_out_without_a_copy() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    result = through("ContiguousTensor", given)
    assert type(result) is hami.Tensor
    assert torch.from_dlpack(result).data_ptr() == given.data_ptr()
    assert address(hami.to_numpy(result)) == given.data_ptr()
    assert hami.to_like(result, given).data_ptr() == given.data_ptr()
    assert hami.to_like(through("SoftmaxTensor", given), given).sum() == pytest.approx(2)
    assert torch.from_dlpack(through("ContiguousTensor", given.to(torch.bfloat16))).dtype == torch.bfloat16


def test_strided_arrays_are_not_copied() -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)[::-1, ::2]
    passed = hami.to_numpy(through("FixTensor(shape='3,2')", array))
    assert address(passed) == address(array)
    assert passed.strides == array.strides
    copied = hami.to_numpy(through("ContiguousTensor", array))
    assert address(copied) != address(array)
    assert copied.flags.c_contiguous
    assert np.array_equal(copied, array)


def test_exporters_without_arguments_are_accepted() -> None:
    array = np.arange(3.0)
    assert address(hami.to_numpy(through("ContiguousTensor", Exporter(array)))) == address(array)


@pytest.mark.skipif(not VERSIONED, reason="numpy before 2.1 exports no read-only arrays")
def test_a_read_only_array_is_accepted_and_stays_read_only() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    result = through("ContiguousTensor", array)
    assert address(hami.to_numpy(result)) == address(array)
    assert not hami.to_numpy(result).flags.writeable
    assert memoryview(result).readonly
    with pytest.raises(BufferError) as raised:
        result.__dlpack__()
    assert str(raised.value) == (
        "the tensor is read-only, which DLPack before 1.0 cannot express: pass max_version=(1, 0)"
    )
    assert hami.to_numpy(through("SoftmaxTensor", array)).flags.writeable


def test_unaligned_elements_are_read() -> None:
    array = np.frombuffer(bytearray(b"\0" + np.array([1.0, 3.0, 2.0], np.float32).tobytes()), np.float32, 3, 1)
    assert address(array) % 4 != 0
    assert hami.to_numpy(through("ArgMaxTensor", array)) == 1


def test_arrays_of_later_requests_are_read_like_those_of_the_first() -> None:
    arrays = [np.array(2.5), np.zeros((0, 3)), np.arange(6)[::-2], np.array([1 + 2j, True]), np.ones(3, ">i4")]
    with hami.pipe("ContiguousTensor") as pipe, hami.pipe("Identity") as unread:
        for array in arrays * 3:
            request = {"data": {"x": array}, "a": array}
            unread(request)
            assert request["a"] is array
            assert request["result"]["x"] is array
            result = hami.to_numpy(pipe({"data": array})["result"])
            assert (result.dtype, result.shape) == (array.dtype.newbyteorder("="), array.shape)
            assert np.array_equal(result, array)


def test_an_array_is_freed_after_its_request() -> None:
    with hami.pipe("ContiguousTensor") as pipe:
        for _ in range(3):
            array = np.arange(6)
            freed = weakref.ref(array)
            pipe({"data": array})
            del array
            assert freed() is None


def test_data_that_no_backend_converts_keeps_its_type() -> None:
    array = np.zeros(2)
    assert through("Identity", array) is array
    tensor = through("SoftmaxTensor", array)
    assert through("Identity", tensor) is tensor


# Conversions


def test_to_numpy_and_to_like_return_suitable_objects_unchanged() -> None:
    array = np.zeros(2)
    tensor = through("ContiguousTensor", array)
    assert hami.to_numpy(array) is array
    assert hami.to_like(array, np.ones(1)) is array
    assert hami.to_like(tensor, tensor) is tensor


def test_to_like_returns_the_type_of_the_example() -> None:
    array = np.zeros(2)
    back = hami.to_like(through("ContiguousTensor", array), array)
    assert type(back) is np.ndarray
    assert address(back) == address(array)


def test_the_error_of_an_impossible_conversion_contains_the_reason() -> None:
    with pytest.raises(hami.DataTypeError) as raised:
        hami.to_numpy("text")  # type: ignore[arg-type]
    assert str(raised.value) == "to_numpy takes a hami.Tensor or another object with __dlpack__, got str"
    with pytest.raises(hami.DataTypeError) as raised:
        hami.to_like(np.zeros(1), 5)
    assert str(raised.value) == "to_like: the package of int has no from_dlpack; pass an array or a tensor as `like`"


def test_a_bfloat16_tensor_becomes_an_array_of_ml_dtypes_over_the_same_memory() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 without ml_dtypes").bfloat16
    half = through("FixTensor(dtype=bfloat16)", np.array([[1, 2, 3]], np.uint8))
    array = hami.to_numpy(half)
    assert array.dtype == bfloat16
    assert array.astype(np.float32).tolist() == [[1, 2, 3]]
    assert np.shares_memory(array.view(np.uint16), hami.to_numpy(half).view(np.uint16))
    assert np.asarray(half).dtype == hami.to_like(half, np.zeros(1)).dtype == bfloat16


def test_an_array_of_bfloat16_is_a_tensor_over_the_same_memory() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 without ml_dtypes").bfloat16
    array = np.arange(12).reshape(3, 4).astype(bfloat16)
    for given in (array, array.T, array[::-1, ::2], array[1, 1:]):
        with hami.pipe("Identity") as pipe:
            assert pipe({"data": given})["result"] is given
        result = through("ContiguousTensor", given)
        assert result.dtype == "bfloat16"
        assert result.tolist() == given.astype(np.float32).tolist()


def test_a_bfloat16_tensor_without_ml_dtypes_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    half = through("FixTensor(dtype=bfloat16)", np.zeros(1, np.uint8))
    expected = "to_numpy: numpy cannot convert <hami.Tensor bfloat16 [1]>: it has no bfloat16 without ml_dtypes: pip "
    with pytest.raises(hami.DataTypeError) as raised:
        hami.to_numpy(half)
    assert str(raised.value).startswith(expected)
    with pytest.raises(hami.DataTypeError):
        half.__array__()


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">u8", ">f8", ">c8"])
def test_an_array_of_the_other_byte_order_is_converted(dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    for given in (array, array.T, array[::-1, ::2]):
        result = hami.to_numpy(through("ContiguousTensor", given))
        assert result.dtype == given.dtype.newbyteorder("=")
        assert np.array_equal(result, given)


@pytest.mark.parametrize("scalar", [np.float32(0.5), np.float64(0.5), np.int64(3), np.uint8(3), np.bool_(True)])
def test_a_numpy_scalar_is_a_tensor_without_axes(scalar: np.generic) -> None:
    result = through("ContiguousTensor", scalar)
    assert (result.shape, result.dtype, result.item()) == ((), scalar.dtype.name, scalar.item())


def test_a_numpy_scalar_that_is_not_a_number_is_still_an_error() -> None:
    with pytest.raises(hami.DataTypeError, match=r"numpy\.datetime64"):
        through("ContiguousTensor", np.datetime64("2026-01-01"))


def test_an_array_that_no_tensor_can_hold_is_still_an_error() -> None:
    with pytest.raises(hami.DataTypeError, match="cannot be imported as a tensor"):
        through("ContiguousTensor", np.array(["text"]))


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(Damaged.SHAPE, "a DLPack tensor without a shape"), (Damaged.DATA, "a DLPack tensor without memory")],
)
def test_a_damaged_dlpack_struct_never_reaches_another_package(offset: int, reason: str) -> None:
    """It would end the process there."""
    damaged = Damaged(np.zeros(2), offset, 0)
    assert refusal("ContiguousTensor", damaged).endswith(f"`data`: {reason}")
    with pytest.raises(hami.DataTypeError) as raised:
        hami.to_numpy(damaged)
    assert str(raised.value) == f"to_numpy: numpy cannot convert this {__name__}.Damaged: {reason}"
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(hami.DataTypeError) as raised:
        hami.to_like(damaged, torch.zeros(1))  # type: ignore[arg-type]
    assert str(raised.value) == f"to_like: torch cannot convert this {__name__}.Damaged: {reason}"


def test_importing_hami_does_not_import_numpy() -> None:
    code = "import sys, hami; hami.pipe('SoftmaxTensor').close(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# hami.Tensor


@pytest.fixture
def tensor() -> hami.Tensor:
    return through("FixTensor(dtype=float64)", np.array([[1, 2, 3], [4, 5, 6]], np.float32))  # type: ignore[no-any-return]


def test_a_tensor_has_shape_dtype_and_device(tensor: hami.Tensor) -> None:
    assert tensor.shape == (2, 3)
    assert tensor.dtype == "float64"
    assert tensor.nbytes == 48
    assert len(tensor) == 2
    assert repr(tensor) == "<hami.Tensor float64 [2, 3]: [[1, 2, 3], [4, 5, 6]]>"
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(TypeError, match=r"^len\(\) of a tensor without axes$"):
        len(through("ArgMaxTensor", np.zeros(2)))


# Values


def test_tolist_returns_the_numbers_of_every_dtype() -> None:
    for dtype in ("?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "F", "D"):
        array = np.array([[0, 1], [1, 0]], dtype)
        found = through("ContiguousTensor", array).tolist()
        assert found == array.tolist()
        assert {type(number) for row in found for number in row} == {type(array.tolist()[0][0])}
    assert through("FixTensor(dtype=bfloat16)", np.array([3], np.uint8)).tolist() == [3.0]
    assert through("ContiguousTensor", np.array(7)).tolist() == 7
    assert through("ContiguousTensor", np.zeros((2, 0))).tolist() == [[], []]
    strided = np.arange(12).reshape(3, 4)[::-1, ::2]
    assert through("FixTensor", strided).tolist() == strided.tolist()


def test_tolist_without_numbers_for_the_elements_is_an_error_that_names_the_tensor() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = through("ContiguousTensor", torch.zeros(2).to(torch.float8_e4m3fn))
    for read in (tensor.tolist, lambda: tensor[0]):
        with pytest.raises(hami.DataTypeError) as raised:
            read()
        assert str(raised.value).startswith("Python has no numbers for the elements of float8_e4m3fn [")
    assert repr(tensor) == "<hami.Tensor float8_e4m3fn [2]>"


def test_item_returns_the_only_element(tensor: hami.Tensor) -> None:
    assert through("ArgMaxTensor", np.array([1, 3])).item() == 1
    assert tensor[1:, :1].item() == 4.0
    with pytest.raises(hami.DataTypeError) as raised:
        tensor.item()
    assert str(raised.value) == (
        "item() takes a tensor of one element, got float64 [2, 3]; select one with an index, or use tolist()"
    )


def test_an_index_selects_like_in_numpy_over_the_same_memory(tensor: hami.Tensor) -> None:
    array = hami.to_numpy(tensor)
    for index in (0, -1, np.int64(1), slice(None), slice(None, None, -1), slice(5, 9), ..., (..., 1), (1, ...)):
        assert tensor[index].tolist() == array[index].tolist()
    for pair in ((slice(0, 1), slice(1, None)), (slice(None), -2), (0, slice(None, None, 2)), (..., slice(2, 0, -1))):
        assert tensor[pair].tolist() == array[pair].tolist()
    assert tensor[1, 2] == 6.0
    assert type(tensor[1, 2]) is float
    assert tensor[1, 2, ...].shape == ()
    assert address(np.asarray(tensor[1])) == address(array) + 24
    assert [row.tolist() for row in tensor] == [[1, 2, 3], [4, 5, 6]]


def test_a_view_keeps_the_memory_alive() -> None:
    row = through("SoftmaxTensor", np.zeros((2, 2)))[0]
    assert row.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (2, "index 2 is out of range for axis 0 of float64 [2, 3]"),
        ((0, -4), "index -4 is out of range for axis 1 of float64 [2, 3]"),
        ((0, 0, 0), "an index of 3 axes does not fit float64 [2, 3]"),
        ((..., 0, ...), "an index of 1 axis and several ... does not fit float64 [2, 3]"),
    ],
)
def test_an_index_out_of_range_names_the_axis_and_the_tensor(tensor: hami.Tensor, index: Any, text: str) -> None:
    with pytest.raises(hami.OutOfRange) as raised:
        tensor[index]
    assert str(raised.value) == text


def test_an_index_of_another_type_is_rejected(tensor: hami.Tensor) -> None:
    for index, name in (("x", "str"), (1.0, "float"), ([0], "list")):
        with pytest.raises(hami.DataTypeError) as raised:
            tensor[index]
        assert str(raised.value) == f"the index of a tensor takes ints, slices and ..., got {name}"


def test_comparisons_compare_the_elements(tensor: hami.Tensor) -> None:
    array = hami.to_numpy(tensor)
    assert (tensor == [[1, 2, 3], [4, 5, 6]]).all()
    assert (tensor == tensor[:]).all()
    assert (tensor != array + 1).all()
    assert ((tensor < 3) == (array < 3)).all()
    assert ((tensor >= array.T[0][:, None]) == (array >= array.T[0][:, None])).all()
    assert (through("FixTensor(dtype=bfloat16)", np.array([3], np.uint8)) == [3]).all()
    assert through("ArgMaxTensor", np.array([1, 3])) == 1
    assert (tensor == None, tensor == "x", tensor != "x") == (False, False, True)  # noqa: E711
    assert len({tensor, tensor, tensor[:]}) == 2
    with pytest.raises(hami.DataTypeError) as raised:
        tensor == [1, 2]  # noqa: B015
    assert str(raised.value).startswith("cannot compare <hami.Tensor float64 [2, 3]> with list [2]: ")


def test_a_comparison_without_numpy_says_what_to_install(tensor: hami.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(hami.DataTypeError) as raised:
        tensor == 1  # noqa: B015
    assert str(raised.value) == "comparing a hami.Tensor needs numpy: pip install numpy; or compare its tolist()"


def test_only_a_tensor_of_one_element_has_a_truth_value(tensor: hami.Tensor) -> None:
    assert tensor[:1, :1]
    assert not through("ArgMaxTensor", np.array([3, 1]))
    with pytest.raises(hami.DataTypeError, match=r"^item\(\) takes a tensor of one element, got float64 \[2, 3\]"):
        bool(tensor)


def test_numpy_converts_a_tensor_with_dtype_and_copy(tensor: hami.Tensor) -> None:
    assert address(tensor.__array__()) == address(hami.to_numpy(tensor))
    assert address(tensor.__array__(copy=True)) != address(hami.to_numpy(tensor))
    assert np.asarray(tensor, np.float32).dtype == np.float32
    assert np.stack([tensor, tensor]).shape == (2, 2, 3)
    with pytest.raises(
        ValueError, match=r"^<hami\.Tensor float64 \[2, 3\]> cannot be converted to float32 without a copy$"
    ):
        tensor.__array__("float32", copy=False)


def test_the_repr_shows_the_values_and_shortens_large_tensors() -> None:
    shown = {
        "<hami.Tensor int64 []: 3>": np.array(3),
        "<hami.Tensor float32 [3]: [0.1, -2, nan]>": np.array([0.1, -2, np.nan], np.float32),
        "<hami.Tensor bool [1, 2]: [[True, False]]>": np.array([[True, False]]),
        "<hami.Tensor float64 [0, 3]: []>": np.zeros((0, 3)),
        "<hami.Tensor int64 [40]: [0, 1, 2, …, 37, 38, 39]>": np.arange(40),
        "<hami.Tensor int64 [2, 30]: [[0, 1, 2, …, 27, 28, 29], …]>": np.arange(60).reshape(2, 30),
        "<hami.Tensor uint8 [2, 2, 9, 2]: [[[[0, 0], …], …], …]>": np.zeros((2, 2, 9, 2), np.uint8),
    }
    assert [repr(through("ContiguousTensor", array)) for array in shown.values()] == list(shown)


def test_a_tensor_is_a_buffer(tensor: hami.Tensor) -> None:
    view = memoryview(tensor)
    assert (view.format, view.shape, view.strides, view.readonly) == ("d", (2, 3), (24, 8), False)
    assert view.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.asarray(tensor).dtype == np.float64
    assert address(np.asarray(tensor)) == address(hami.to_numpy(tensor))


@pytest.mark.parametrize("dtype", ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "F", "D"])
def test_every_dtype_of_numpy_is_preserved(dtype: str) -> None:
    array = np.array([0, 1], dtype)
    result = through("ContiguousTensor", array)
    for back in (hami.to_numpy(result), np.asarray(result)):
        assert back.dtype == array.dtype
        assert np.array_equal(back, array)
    assert result.dtype == array.dtype.name


def test_a_dtype_without_a_format_letter_has_no_buffer() -> None:
    half = through("FixTensor(dtype=bfloat16)", np.zeros(1, np.uint8))
    with pytest.raises(BufferError):
        memoryview(half)


def test_the_arguments_of_dlpack_follow_the_protocol(tensor: hami.Tensor) -> None:
    def name(capsule: object) -> str:
        return repr(capsule).split('"')[1]

    assert name(tensor.__dlpack__()) == "dltensor"
    assert name(tensor.__dlpack__(max_version=(0, 8))) == "dltensor"
    assert name(tensor.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    assert name(tensor.__dlpack__(max_version=(2, 0), dl_device=(1, 0), copy=False)) == "dltensor_versioned"
    with pytest.raises(BufferError, match=r"^a tensor in CPU memory has no stream: stream must be None$"):
        tensor.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"^the tensor is in CPU memory and cannot be exported to another device$"):
        tensor.__dlpack__(dl_device=(2, 0))


def test_a_copy_is_made_when_asked_for(tensor: hami.Tensor) -> None:
    class Copying:
        def __dlpack__(self, **options: Any) -> Any:
            return tensor.__dlpack__(**{**options, "copy": True})

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    copied = np.from_dlpack(Copying())
    assert address(copied) != address(hami.to_numpy(tensor))
    assert np.array_equal(copied, hami.to_numpy(tensor))


# Unsuitable objects


EXPECTED = "takes a tensor (anything with __dlpack__), or a list or dict of them; `data`"


def test_the_error_for_an_object_that_is_not_a_tensor_names_its_type() -> None:
    assert refusal("SoftmaxTensor", {1, 2}) == f"SoftmaxTensor {EXPECTED} is of type set"
    assert refusal("SoftmaxTensor", Exporter) == (
        f"SoftmaxTensor {EXPECTED}: the type cannot be imported as a tensor: "
        "Exporter.__dlpack_device__() missing 1 required positional argument: 'self'"
    )
    assert refusal("SoftmaxTensor", {"a": {1}}).endswith('; "a" of `data` is of type set')
    assert refusal("SoftmaxTensor", {1: 2}) == "the keys of a dict that the core reads must be str, got 1"


def test_the_error_for_memory_of_another_device_names_the_device() -> None:
    assert refusal("SoftmaxTensor", {"a": Exporter(np.zeros(1), device=(8, 0))}) == (
        "SoftmaxTensor cannot take data on metal:0: no installed plugin has SoftmaxTensor for metal"
    )


def test_the_error_for_memory_of_a_cuda_device_names_the_plugin_to_install() -> None:
    for plugin in ("hami_cuda", "hami_torch"):
        if find_spec(plugin):
            pytest.skip(f"{plugin}, which has SoftmaxTensor for CUDA, is installed")
    with hami.pipe("SoftmaxTensor") as pipe, pytest.raises(hami.DataTypeError) as raised:
        pipe({"data": Exporter(np.zeros(1), device=(2, 3))})
    assert str(raised.value).split("\n")[:2] == [
        "SoftmaxTensor cannot take data on cuda:3: no installed plugin has SoftmaxTensor for cuda",
        "  pip install hami-cuda, or move the data to the CPU",
    ]


def test_a_tensor_without_memory_is_rejected() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    message = refusal("CatTensor", torch.zeros(1, device="meta"))
    assert message.startswith(f"CatTensor {EXPECTED}: the torch.Tensor cannot be imported as a tensor: ")
    message = refusal("CatTensor", torch.zeros(1, requires_grad=True))
    assert "require gradient" in message


def exporter_of(result: Callable[[], Any]) -> Any:
    class Odd:
        def __dlpack__(self) -> Any:
            return result()

    return Odd()


def test_invalid_exports_are_errors() -> None:
    def broken() -> Any:
        raise BufferError("no export today")

    owner = "exporter_of.<locals>.Odd"
    assert refusal("CatTensor", exporter_of(broken)) == (
        f"CatTensor {EXPECTED}: the {__name__}.{owner} cannot be imported as a tensor: no export today"
    )
    assert refusal("CatTensor", exporter_of(lambda: 5)) == (
        f"CatTensor {EXPECTED}: the {__name__}.{owner} did not return a DLPack capsule from __dlpack__: 5"
    )
    refused = f"CatTensor {EXPECTED}: the {__name__}.{owner}"
    used = np.zeros(1).__dlpack__()
    new_name = b"used_dltensor"
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(used), new_name)
    assert refusal("CatTensor", exporter_of(lambda: used)).startswith(
        f"{refused} did not return a DLPack capsule from __dlpack__: <capsule object "
    )


class Negated:
    """As a view of torch whose elements are the negated ones in memory."""

    def is_neg(self) -> bool:
        return True

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **arguments: Any) -> Any:
        return np.ones(3).__dlpack__(**arguments)


def test_a_negated_view_is_rejected_which_dlpack_does_not_describe() -> None:
    assert refusal("ArgMaxTensor", Negated()).endswith(
        "is a negated view, which DLPack does not describe; call resolve_neg() on it"
    )
    with pytest.raises(hami.DataTypeError, match="negated view"):
        hami.to_numpy(Negated())
    torch = pytest.importorskip("torch", reason="torch is not installed")
    view = torch.tensor([1 + 2j]).conj().imag
    with pytest.raises(hami.DataTypeError, match="negated view"):
        hami.to_numpy(view)
    assert hami.to_numpy(view.resolve_neg()).tolist() == [-2]


class Elementwise(Negated):
    """Of a package whose is_neg answers for each element"""

    def is_neg(self) -> Any:
        return np.array([True, False, True])


def test_only_one_true_means_that_a_view_is_negated() -> None:
    assert hami.to_numpy(Elementwise()).tolist() == [1, 1, 1]


def test_reading_tensors_leaves_no_references_to_names_behind() -> None:
    given, name = Elementwise(), sys.intern("is_neg")
    before = sys.getrefcount(name)
    for _ in range(100):
        hami.to_numpy(given)
    assert sys.getrefcount(name) - before < 100


@pytest.mark.skipif(not VERSIONED, reason="numpy before 2.1 exports no versioned tensors")
def test_another_major_version_of_dlpack_is_rejected() -> None:
    capsule = np.zeros(1).__dlpack__(max_version=(1, 0))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    version = ctypes.cast(get(capsule, b"dltensor_versioned"), ctypes.POINTER(ctypes.c_uint32))
    version[0] = 2
    assert refusal("CatTensor", exporter_of(lambda: capsule)) == (
        f"CatTensor {EXPECTED}: the tensor is of DLPack 2.0; this hami-core reads DLPack 1"
    )


def test_elements_that_are_not_numbers_are_rejected() -> None:
    assert "cannot be imported as a tensor" in refusal("ArgMaxTensor", np.array(["text"]))
    assert refusal("ArgMaxTensor", np.zeros(2, complex)) == "ArgMaxTensor takes real numbers, got complex128 [2]"


# Comparison with numpy


def shapes() -> Iterator[tuple[Any, int]]:
    source = np.random.default_rng(7).normal(size=(3, 4, 5)).astype(np.float32)
    for array in (source, source.transpose(2, 0, 1), source[:, ::-2], source[:, :0]):
        for axis in range(-3, 3):
            yield array, axis


def test_softmax_argmax_and_topk_agree_with_numpy() -> None:
    for array, axis in shapes():
        powers = np.exp(array - array.max(axis=axis, keepdims=True, initial=-np.inf))
        shares = powers / powers.sum(axis=axis, keepdims=True)
        assert np.allclose(hami.to_numpy(through(f"SoftmaxTensor(axis={axis})", array)), shares, atol=1e-6)
        if array.shape[axis] == 0:
            continue
        assert np.array_equal(hami.to_numpy(through(f"ArgMaxTensor(axis={axis})", array)), array.argmax(axis=axis))
        best = through(f"TopKTensor(k=2,axis={axis})", array)
        order = np.flip(np.argsort(array, axis=axis), axis=axis).take([0, 1], axis=axis)
        assert np.array_equal(hami.to_numpy(best["indices"]), order)
        assert np.array_equal(hami.to_numpy(best["values"]), np.take_along_axis(array, order, axis=axis))


def test_python_backends_gather_and_scatter_with_the_core() -> None:
    sizes = []

    @hami.register("TestDoubling")
    class Doubling(hami.Backend):
        max = 8

        def forward(self, batch: Any) -> None:
            for item in batch:
                array = hami.to_numpy(item["data"])
                sizes.append(len(array))
                item["result"] = (array * 2, {"sum": array.sum(axis=1)}["sum"])

    with hami.pipe("CatSplit[S[FixTensor('-1,2'),CatTensor],TestDoubling,SplitTensor]") as pipe:
        requests = [{"data": np.full((rows, 2), rows, np.float32), "request_size": rows} for rows in (1, 3, 2)]
        pipe(requests)
    assert sum(sizes) == 6
    for rows, request in zip((1, 3, 2), requests, strict=True):
        doubled, sums = request["result"]
        assert np.array_equal(hami.to_numpy(doubled), np.full((rows, 2), 2 * rows))
        assert np.array_equal(hami.to_numpy(sums), np.full(rows, 2 * rows))


def test_a_tuple_is_treated_like_a_list() -> None:
    results = through("ArgMaxTensor", (np.array([1, 2]), np.array([2, 1])))
    assert [int(hami.to_numpy(result)) for result in results] == [1, 0]


class Described(ctypes.Structure):
    """DLManagedTensorVersioned of one axis, on a CUDA device"""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def test_an_adopted_tensor_is_ordered_and_released_by_its_owner() -> None:
    calls: list[object] = []
    delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls.append("deleted"))

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    def order(_: int, stream: int) -> None:
        calls.append(stream)

    def pointer(function: Any) -> int:
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    shape = (ctypes.c_int64 * 1)(4)
    described = Described(
        major=1, deleter=pointer(delete), data=4096, device_type=2, device_id=3, ndim=1, code=2, bits=32, lanes=1
    )
    described.shape = shape
    tensor = hami.Tensor.adopt(ctypes.addressof(described), pointer(order))
    assert (tensor.shape, tensor.dtype, tensor.device) == ((4,), "float32", "cuda:3")
    tensor.__dlpack__(stream=17)
    assert calls == [17]
    del tensor
    assert calls == [17, "deleted"]
    with pytest.raises(ValueError, match="takes the address of a DLPack tensor, got 0"):
        hami.Tensor.adopt(0)
