"""The device `onnx`: a model that is cut, preempted or aborted gives the outputs of the whole model."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError, ThreadPoolExecutor

import hami
import numpy as np
import pytest
from conftest import x

from hami_accel import AccelModel, DeviceError, InputError, Quantization, engine_of

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from models import SHAPES, Builder, real_models  # noqa: E402

from hami_accel import cache  # noqa: E402
from hami_accel.onnx_device.cut import choose_borders  # noqa: E402
from hami_accel.onnx_device.device import OnnxDevice  # noqa: E402
from hami_accel.sim import SimDevice  # noqa: E402

FINEST = 1e-6  # microseconds: every possible border
LIMITS = {"det": 1000, "cls": 100, "rec": 1000}  # microseconds, less than each needs as a whole
REAL_SHAPES = {"det": [1, 3, 96, 160], "cls": [1, 3, 48, 192], "rec": [1, 3, 48, 96]}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))


def inputs_of(model: AccelModel, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
        if spec.dtype.kind == "f"
        else rng.integers(0, 50, spec.shape).astype(spec.dtype)
        for spec in model.inputs
    }


def page(shape: list[int], seed: int) -> np.ndarray:
    """Return a bright page with dark strokes, on which a text detector finds something."""
    rng = np.random.default_rng(seed)
    image = np.full(shape, 1.0, np.float32)
    for left in range(10, shape[3] - 12, 8):
        top = rng.integers(shape[2] // 3, shape[2] // 2)
        image[:, :, top : top + 14, left : left + rng.integers(2, 6)] = -1.0
    return image + rng.normal(0, 0.02, shape).astype(np.float32)


def whole(path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    return ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"]).run(None, inputs)


def outputs_of(result) -> list[np.ndarray]:
    return list(result.values()) if isinstance(result, dict) else [result]


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        largest = float(np.abs(other).max()) or 1.0
        assert float(np.abs(one - other).max()) <= 1e-5 * largest


@pytest.mark.parametrize("name", SHAPES)
def test_a_cut_model_gives_the_outputs_of_the_whole(tmp_path, name):
    path = SHAPES[name](tmp_path / "net.onnx")
    with AccelModel(path, device=OnnxDevice(threads=1), max_time_per_fc=FINEST) as model:
        inputs = inputs_of(model)
        assert_close(outputs_of(model(inputs)), whole(path, inputs))
        assert model.summary()["pieces"] > 1 or name == "one_node"


@pytest.mark.parametrize("name", real_models() or ["none"])
def test_a_real_model_that_is_cut_gives_the_outputs_of_the_whole(name):
    if name == "none":
        pytest.skip("the package rapidocr, which has exported models, is not installed")
    path = real_models()[name]
    probe = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()[0]
    kind = next(kind for kind in REAL_SHAPES if f"_{kind}_" in f"_{name}_" or f"_{kind}" in name)
    with AccelModel(
        path, device=OnnxDevice(threads=1), max_time_per_fc=LIMITS[kind], shapes={probe.name: REAL_SHAPES[kind]}
    ) as model:
        assert model.summary()["pieces"] > 1
        for seed in range(2):
            inputs = {probe.name: page(REAL_SHAPES[kind], seed)}
            assert_close(outputs_of(model(inputs)), whole(path, inputs))


def test_a_preempted_task_gives_the_same_bits(tmp_path):
    path = SHAPES["residual_blocks"](tmp_path / "net.onnx")
    device = OnnxDevice(threads=1)
    with AccelModel(path, 4, device=device, max_time_per_fc=FINEST) as model:
        inputs = [inputs_of(model, seed) for seed in range(40)]
        alone = [model(one) for one in inputs]
        for one, expected in zip(inputs, alone, strict=True):
            low = model.start(one, priority=0)
            high = model.start(inputs[0], priority=254)
            urgent = model.start(inputs[1], priority=255)
            assert np.array_equal(model.wait(urgent), alone[1])
            assert np.array_equal(model.wait(low), expected)
            assert np.array_equal(model.wait(high), alone[0])


def test_28_slots_with_waits_out_of_order_from_8_threads_give_the_reference(tmp_path):
    path = SHAPES["several_inputs_and_outputs"](tmp_path / "net.onnx")
    results: dict[int, list[np.ndarray]] = {}
    with AccelModel(path, 28, device=OnnxDevice(cores=2, threads=1), max_time_per_fc=FINEST) as model:
        inputs = [inputs_of(model, seed) for seed in range(100)]

        def run(numbers: list[int]) -> None:
            for start in range(0, len(numbers), 3):
                tickets = [(i, model.start(inputs[i], priority=(5 * i) % 256)) for i in numbers[start : start + 3]]
                for i, ticket in reversed(tickets):
                    results[i] = outputs_of(model.wait(ticket))

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(run, list(range(first, 100, 8))) for first in range(8)]:
                done.result(60)
        for i, found in results.items():
            for one, other in zip(found, outputs_of(model(inputs[i])), strict=True):
                assert np.array_equal(one, other)
    assert len(results) == 100


def test_an_aborted_function_call_is_run_again_from_its_start(tmp_path):
    b = Builder()
    y = b.input("x", [1, 128, 128])
    for _ in range(400):
        y = b("Tanh", b("MatMul", y, b.random(1, 128, 128)))
    path = b.save(tmp_path / "slow.onnx", y)
    device = OnnxDevice(threads=1)
    aborted = []
    with (
        AccelModel(path, 2, device=device) as slow,
        AccelModel(SHAPES["one_node"](tmp_path / "u.onnx"), device=device) as u,
    ):
        inputs = inputs_of(slow)
        expected = slow(inputs)
        settle = slow._engine._settle

        def watch(task, core, seconds, answered, error):
            aborted.extend([type(error).__name__] if error is not None else [])
            settle(task, core, seconds, answered, error)

        slow._engine._settle = watch
        low = slow.start(inputs, priority=0)
        while low._task.call is None and not low.done():
            pass
        assert u.infer(x(), priority=255).shape == (1, 4)
        assert aborted == ["CallAborted"]
        assert not low.done()
        assert np.array_equal(slow.wait(low), expected)
        ticket = slow.start(inputs)
        while ticket._task.call is None and not ticket.done():
            pass
        assert ticket.cancel()
        with pytest.raises(CancelledError):
            slow.wait(ticket)


def test_a_cut_is_cached_by_content_and_a_damaged_entry_is_made_again(tmp_path):
    path = SHAPES["perceptron"](tmp_path / "net.onnx")

    def load(limit: float) -> dict:
        with AccelModel(path, device=OnnxDevice(threads=1), max_time_per_fc=limit) as model:
            return model.summary()

    first, second = load(FINEST), load(FINEST)
    assert (first["cut_from_cache"], second["cut_from_cache"]) == (False, True)
    assert first["piece_us"] == second["piece_us"]
    assert len(first["live_bytes"]) == len(first["piece_us"]) == first["pieces"]
    assert load(0)["pieces"] == 1
    for file in cache.folder().glob("*.json"):
        file.write_text('{"borders": [1]}')
    assert load(FINEST)["cut_from_cache"] is False
    SHAPES["deep_and_narrow"](path)
    assert load(FINEST)["cut_from_cache"] is False


def test_a_model_that_cannot_be_cut_runs_as_one_piece_and_the_log_says_so(tmp_path, caplog):
    path = SHAPES["one_node"](tmp_path / "net.onnx")
    with AccelModel(path, device=OnnxDevice(), max_time_per_fc=FINEST) as model:
        assert np.array_equal(model(x(-1, 2, 3, 4)), x(0, 2, 3, 4))
    assert [r.levelno for r in caplog.records if "cannot be cut" in r.getMessage()] == [logging.WARNING]


def test_the_time_of_pieces_is_limited_by_the_profile():
    seconds = [1.0] * 10
    assert choose_borders(seconds, [4] * 9 + [0], 5.0) == [5, 10]
    assert choose_borders(seconds, [4_000_000_000] * 3 + [4] + [4_000_000_000] * 5 + [0], 6.0) == [4, 10]
    assert choose_borders(seconds, [None] * 9 + [0], 5.0) == [10]
    assert choose_borders([1, 9, 1], [4, 4, 0], 5.0) == [1, 2, 3]


def test_dynamic_axes_need_shapes(tmp_path):
    b = Builder()
    path = b.save(tmp_path / "net.onnx", b("Relu", b.input("x", ["n", 3, "h", "w"])))
    with pytest.raises(hami.ConfigError, match=r"accelerators need fixed shapes: .*shapes=\{'x': \[1, 3, 1, 1\]\}"):
        AccelModel(path, device=OnnxDevice())
    for wrong in ([1, 3, 8], [1, 4, 8, 8], [1, 3, 8, -1]):
        with pytest.raises(hami.ConfigError, match="has the shape"):
            AccelModel(path, device=OnnxDevice(), shapes={"x": wrong})
    with AccelModel(path, device=OnnxDevice(), shapes={"x": [2, 3, 8, 8]}) as model:
        assert (model.inputs[0].shape, model.inputs[0].layout, model.outputs[0].shape) == (
            (2, 3, 8, 8),
            "NCHW",
            (2, 3, 8, 8),
        )


def test_a_file_that_is_not_a_model_is_named(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(hami.ConfigError, match=r"net\.onnx.* cannot be read"):
        AccelModel(path, device=OnnxDevice())
    SHAPES["one_node"](path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(hami.ConfigError, match=r"net\.onnx"):
        AccelModel(path, device=OnnxDevice())
    with pytest.raises(hami.ConfigError, match="takes the path of an ONNX file, got int"):
        AccelModel(3, device=OnnxDevice())
    b = Builder()
    strings = b.save(tmp_path / "s.onnx", b("Identity", b.input("x", [1], onnx.TensorProto.STRING)), kind=8)
    with pytest.raises(hami.ConfigError, match=r"has the type tensor\(string\)"):
        AccelModel(strings, device=OnnxDevice())


def test_an_error_of_onnxruntime_keeps_its_code(tmp_path):
    b = Builder()
    table, index = b.random(4, 2), b.input("x", [1], onnx.TensorProto.INT64)
    path = b.save(tmp_path / "net.onnx", b("Gather", table, index))
    with AccelModel(path, device=OnnxDevice()) as model:
        with pytest.raises(DeviceError, match="indices element out of data bounds") as caught:
            model(np.array([9]))
        assert caught.value.code == 2
        assert model(np.array([1])).shape == (1, 2)


def test_quantised_ports_are_reported(tmp_path):
    b = Builder()
    scale, zero = b.weight(np.float32(0.5)), b.weight(np.int8(1))
    y = b("Relu", b("DequantizeLinear", b.input("x", [1, 4], onnx.TensorProto.INT8), scale, zero))
    path = b.save(tmp_path / "net.onnx", b("QuantizeLinear", y, scale, zero), kind=onnx.TensorProto.INT8)
    with AccelModel(path, device=OnnxDevice()) as model:
        assert model.inputs[0].quantization == model.outputs[0].quantization == Quantization(0.5, 1)
        assert model([[-1, 0.5, 1, 2]]).tolist() == [[1, 2, 3, 5]]
        with pytest.raises(InputError, match="dtype differs"):
            model(np.zeros((1, 4), np.int32))


def test_only_the_pieces_of_a_cut_model_share_one_arena(tmp_path, monkeypatch):
    from hami_accel.onnx_device import sessions

    opened = []

    def open_session(model, settings, file):
        opened.append(settings)
        return sessions_open(model, settings, file)

    sessions_open = sessions.open_session
    monkeypatch.setattr(sessions, "open_session", open_session)
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path))
    b = Builder()
    y = b.input("x", [1, 256, 256])
    for _ in range(8):
        y = b("MatMul", y, b.random(1, 256, 256))
    path = b.save(tmp_path / "net.onnx", y)
    for limit, entry in ((0, ""), (300, "1")):
        with AccelModel(path, device=OnnxDevice(threads=1), max_time_per_fc=limit) as model:
            assert (model.summary()["pieces"] > 1) is bool(entry)
            assert _entry(opened[-1], "session.use_env_allocators") == entry


def _entry(settings, key: str) -> str:
    try:
        return settings.get_session_config_entry(key)
    except RuntimeError:  # it was not set
        return ""


def test_the_program_of_the_documents_runs_on_onnx(tmp_path, capsys):
    b = Builder()
    path = b.save(tmp_path / "net.onnx", b("Relu", b("MatMul", b.input("states", [1, 8]), b.random(8, 8))))
    states = np.ones((1, 8), np.float32)
    with AccelModel(path, n_task=4, select=0, device="onnx", max_time_per_fc=500) as m:
        m.s()
        m.dirty_run(10)
        ticket = m.start(states, slot=2, priority=254, deadline=5)
        expected = m.wait(ticket, timeout=60)
        assert not m.is_busy(2)
        assert np.array_equal(m(states), expected)
        assert np.array_equal(m.infer(states, priority=255), expected)
        m.bind(2, "states", states)
        m.set_scheduling(cores=[0], priority=10, slot=2)
        assert np.array_equal(m.wait(m.start(slot=2)), expected)
        assert m.start(states).cancel() in (True, False)
    assert "10 runs, mean" in capsys.readouterr().out


def test_bound_outputs_are_written(tmp_path):
    with AccelModel(SHAPES["one_node"](tmp_path / "n.onnx"), device=OnnxDevice()) as model:
        given, taken = x(-1, 2, -3, 4), x()
        model.bind(0, "x", given)
        model.bind(0, model.outputs[0].name, taken)
        for _ in range(2):
            assert model.wait(model.start(slot=0)) is taken
            assert taken.tolist() == [[0, 2, 0, 4]]


def test_the_simulator_computes_an_onnx_model(tmp_path):
    path = SHAPES["residual_blocks"](tmp_path / "net.onnx")
    device = SimDevice(clock="virtual", cores=2)
    engine_of(device)
    with AccelModel(path, 3, device=device, max_time_per_fc=FINEST) as model:
        inputs = [inputs_of(model, seed) for seed in range(3)]
        tickets = [model.start(one, priority=p) for one, p in zip(inputs, (0, 0, 255), strict=True)]
        for one, ticket in zip(inputs, tickets, strict=True):
            assert_close([model.wait(ticket)], whole(path, one))
        assert model.summary()["function_calls"] > 5


def test_the_examples_of_docstrings_run():
    import doctest

    from hami_accel.onnx_device import cut

    assert doctest.testmod(cut).failed == 0
