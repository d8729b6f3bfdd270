"""Opening models: invalid files, missing providers, threads, and sessions that are shared and freed."""

from __future__ import annotations

import errno
import gc
import os
import signal
import weakref

import hami
import numpy as np
import onnxruntime
import pytest

from hami_onnx import _cores, session
from hami_onnx.session import open_native, open_session

VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))


def refused(**parameters) -> str:
    """Return the text of the ConfigError that OnnxTensor raises with these parameters."""
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", **parameters})
    return str(error.value)


def test_the_error_for_a_missing_model_names_the_path(tmp_path):
    path = tmp_path / "none.onnx"
    assert f'parameter "model" of OnnxTensor: file "{path}" does not exist (looked for {path})' in refused(
        model=str(path)
    )


def test_a_directory_is_not_a_model(tmp_path):
    path = str(tmp_path)
    found = refused(model=path)
    assert f'parameter "model" of OnnxTensor: file "{path}" is a folder, name a file in it (looked for {path})' in found


def test_a_path_with_a_nul_character_is_refused():
    assert 'parameter "model" of OnnxTensor: the path "a\\x00b.onnx" contains a NUL character' in refused(
        model="a\0b.onnx"
    )


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_the_error_for_a_truncated_model_names_the_path_and_the_size(models, part):
    path = models.double()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    text = refused(model=str(path))
    assert f'OnnxTensor: "{path}" ({path.stat().st_size} bytes) is truncated or is not an ONNX model: ' in text


@pytest.mark.parametrize(
    ("content", "reason"), [(b"text", "wire type 4 is not used by ONNX"), (b"", "the file is empty")]
)
def test_the_error_for_a_file_of_another_format_states_the_reason(tmp_path, content, reason):
    path = tmp_path / "text.onnx"
    path.write_bytes(content)
    assert f'OnnxTensor: "{path}" ({len(content)} bytes) is truncated or is not an ONNX model: {reason}' in refused(
        model=str(path)
    )


def test_the_error_for_an_unsupported_operator_names_it(tmp_path):
    from conftest import save
    from onnx import TensorProto, helper

    port = (TensorProto.FLOAT, ["n"])
    path = save(tmp_path / "odd.onnx", [helper.make_node("NoSuchOperator", ["x"], ["y"])], {"x": port}, {"y": port})
    text = refused(model=str(path))
    assert f'OnnxTensor: onnxruntime {onnxruntime.__version__} cannot load "{path}"' in text
    assert "NoSuchOperator" in text


def test_a_type_that_numpy_does_not_support_is_refused_when_the_model_is_opened(tmp_path):
    from conftest import save
    from onnx import TensorProto, helper

    quantise = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=TensorProto.INT4)
    ports = {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.INT4, ["n"])}
    path = save(tmp_path / "quantise.onnx", [quantise], *ports, {"scale": np.float32(1)}, opset=21)
    assert (
        'OnnxTensor: "y" of the model has the type tensor(int4), which NumPy does not support; '
        "change it to float32 in the model, with a Cast after the input or before the output"
    ) in refused(model=str(path))


@pytest.mark.skipif(
    VERSION < (1, 23), reason="this onnxruntime refuses opsets above its own before it looks at operators"
)
def test_an_operator_without_a_kernel_names_the_opset_to_convert_to(tmp_path):
    from conftest import save
    from onnx import TensorProto, helper

    port = (TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantise"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = {"scale": np.float32(0.1), "zero": np.uint8(0)}
    path = save(tmp_path / "new.onnx", nodes, {"x": port}, {"y": port}, constants, opset=28)
    assert (
        f'OnnxTensor: "{path}": onnxruntime {onnxruntime.__version__} has no kernel for QuantizeLinear (node '
        '"quantise"), opset 28; convert the model to opset 25, for example with '
        "onnx.version_converter.convert_version(model, 25), or export it with that opset"
    ) in refused(model=str(path))


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA is installed here")
@pytest.mark.parametrize("name", ["cuda", "CUDA", "CUDAExecutionProvider"])
def test_a_missing_provider_is_an_error_and_never_replaced_by_the_cpu(models, name):
    text = refused(model=str(models.double()), provider=name)
    assert (
        f'OnnxTensor: provider "{name}" (CUDAExecutionProvider) is not in the installed onnxruntime '
        f"{onnxruntime.__version__}, which has "
    ) in text
    assert "cpu; use one of these, or run: pip uninstall onnxruntime && pip install onnxruntime-gpu" in text


def test_the_error_for_an_unknown_provider_names_the_known_ones(models):
    assert 'OnnxTensor: "gpu" is not an execution provider of onnxruntime; use one of cpu, cuda, ' in refused(
        model=str(models.double()), provider="gpu"
    )


def test_a_provider_that_onnxruntime_replaced_is_an_error(models, monkeypatch):
    """If libraries of a provider are missing, onnxruntime continues with the CPU; only get_providers() shows it."""
    monkeypatch.setattr("hami_onnx._providers.full_name", lambda provider, backend: "CUDAExecutionProvider")
    opened = onnxruntime.InferenceSession(str(models.double()), providers=["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *args, **options: opened)
    with pytest.raises(hami.ConfigError) as error:
        open_session(models.double(), provider="cuda", backend="OnnxTensor")
    assert str(error.value) == (
        f'OnnxTensor: provider CUDAExecutionProvider could not be started for "{models.double()}", onnxruntime fell '
        "back to CPUExecutionProvider; see its log above for the missing driver or library"
    )


def test_a_provider_is_accepted_by_its_short_or_full_name(models):
    for name in ("cpu", " CPU ", "CPUExecutionProvider"):
        with hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "provider": name}) as pipe:
            assert pipe({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_a_provider_option_without_a_value_is_refused(models):
    text = refused(model=str(models.double()), provider_options=["device_id"])
    assert "OnnxTensor: \"provider_options\" must be written as key=value, got 'device_id'" in text


@pytest.mark.parametrize("threads", [-1, 4097])
def test_a_bad_number_of_busy_threads_is_refused(models, threads):
    text = refused(model=str(models.double()), busy_threads=threads)
    assert f'OnnxTensor: "busy_threads" must be from 0 to 4096, got {threads}' in text


@pytest.mark.parametrize("provider", ["cpu", "cuda"])
def test_a_bad_number_of_busy_threads_is_refused_for_any_provider(models, provider):
    with pytest.raises(hami.ConfigError, match='"busy_threads" must be from 0 to 4096, got -5'):
        open_native(models.double(), provider=provider, busy_threads=-5)


def test_busy_threads_without_effect_open_no_other_session(models):
    path = models.double()
    first = open_native(path, threads=2)
    assert open_native(path, threads=2, busy_threads=2) is first
    assert open_native(path, threads=2, busy_threads=4096) is first
    assert open_native(path, threads=2, busy_threads=1) is not first


@pytest.mark.parametrize("threads", [-1, 4097, 1_000_000])
def test_an_invalid_number_of_threads_is_refused(models, threads):
    text = refused(model=str(models.double()), threads=threads)
    assert f'OnnxTensor: "threads" must be from 0 (all cores that this process may use) to 4096, got {threads}' in text


both = pytest.mark.parametrize("open_model", [open_session, open_native])


@both
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_opens_its_own_session(models, open_model):
    """The child has neither the threads of the parent's sessions nor the thread that holds the lock at the fork."""
    path = models.double()
    opened = open_model(path)
    with session._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(open_model(path) is opened)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert open_model(path) is opened


@both
def test_a_model_that_is_opened_twice_has_one_session(models, open_model):
    path = models.double()
    assert open_model(path) is open_model(str(path))
    assert open_model(path, threads=1) is not open_model(path, threads=2)


@both
def test_a_changed_model_file_gets_a_new_session(models, open_model):
    first = open_model(models.double())
    assert open_model(models.double(width=17)) is not first


def test_closing_the_last_pipe_frees_the_session(models):
    path = models.double()
    pipe = hami.pipe({"backend": "OnnxTensor", "model": str(path), "instance_num": 2})
    pipe({"data": np.ones((1, 2), np.float32)})
    session = weakref.ref(open_native(path))
    gc.collect()
    assert session() is not None
    pipe.close()
    gc.collect()
    assert session() is None


def test_usable_cores_respects_affinity_and_the_container_quota(models, monkeypatch, tmp_path):
    monkeypatch.setattr(_cores.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    for text, cores in [
        ("max 100000\n", 16),
        ("250000 100000\n", 3),
        ("50000 100000\n", 1),
        ("nonsense", 16),
    ]:
        quota = tmp_path / "cpu.max"
        quota.write_text(text)
        monkeypatch.setattr(_cores, "_CGROUP_CPU_MAX", quota)
        assert _cores.usable_cores() == cores
    monkeypatch.setattr(_cores, "_CGROUP_CPU_MAX", tmp_path / "absent")
    assert _cores.usable_cores() == 16


def test_the_session_has_the_configured_number_of_threads(models):
    assert open_session(models.double(), threads=3).get_session_options().intra_op_num_threads == 3
    assert open_session(models.double()).get_session_options().intra_op_num_threads == _cores.usable_cores()


@pytest.mark.parametrize("threads", [0, 2])
def test_threads_of_a_session_stay_on_the_cores_of_the_process(models, pipe, threads):
    """By default, ONNX Runtime binds a thread to each core of the machine."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two cores")
    before = set(os.listdir("/proc/self/task"))
    os.sched_setaffinity(0, {min(allowed)})
    try:
        pipe(model=str(models.double()), threads=threads)({"data": np.ones((1, 2), np.float32)})
        new = set(os.listdir("/proc/self/task")) - before
        assert new
        assert {frozenset(os.sched_getaffinity(int(thread))) for thread in new} == {frozenset({min(allowed)})}
    finally:
        os.sched_setaffinity(0, allowed)


def model_with_external_data(folder, factor, name="weights.bin"):
    """y = x times `factor`, which is stored in a file next to the model."""
    from conftest import save as write
    from onnx import TensorProto, helper, load, save

    folder.mkdir(exist_ok=True)
    port = (TensorProto.FLOAT, ["n", 2])
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    path = write(folder / "model.onnx", [node], {"x": port}, {"y": port}, {"w": np.float32([factor] * 2)})
    model = load(path)
    (folder / name).unlink(missing_ok=True)
    save(model, path, save_as_external_data=True, location=name, size_threshold=0)
    return path


def run(model) -> list[list[float]]:
    with hami.pipe({"backend": "OnnxTensor", "model": str(model)}) as pipe:
        return pipe({"data": np.ones((1, 2), np.float32)})["result"].tolist()


def test_external_data_is_found_next_to_a_link_to_the_model(tmp_path):
    path = model_with_external_data(tmp_path / "blobs", 3)
    links = tmp_path / "links"
    links.mkdir()
    for file, blob in ((path, "aaa"), (path.with_name("weights.bin"), "bbb")):
        (links / file.name).symlink_to(file.rename(file.with_name(blob)))
    assert run(links / "model.onnx") == [[3, 3]]


def test_external_data_is_found_next_to_the_target_of_a_link(tmp_path):
    link = tmp_path / "latest.onnx"
    link.symlink_to(model_with_external_data(tmp_path / "v3", 3))
    assert run(link) == [[3, 3]]
    assert open_session(link) is open_session(tmp_path / "v3" / "model.onnx")


@pytest.mark.parametrize("name", ["weights.bin", "w" * 200])
def test_replaced_external_data_is_loaded_again(tmp_path, name):
    path = model_with_external_data(tmp_path, 3, name)
    opened = open_session(path)
    assert run(path) == [[3, 3]]
    assert open_session(path) is opened
    other = model_with_external_data(tmp_path / "other", 5, name)
    other.with_name(name).replace(path.with_name(name))
    assert run(path) == [[5, 5]]


def test_the_error_for_a_name_that_is_not_utf8_names_the_file(models):
    path = models.double()
    path.write_bytes(path.read_bytes().replace(b"\x0a\x01x", b"\x0a\x01\xff"))
    assert (
        f'cannot load "{path}" ({path.stat().st_size} bytes): the name of an input or output is not valid UTF-8'
    ) in refused(model=str(path))


def test_the_error_for_an_axis_whose_name_is_not_utf8_names_the_file(models):
    path = models.double(rows="batch")
    path.write_bytes(path.read_bytes().replace(b"batch", b"\xe2atch"))
    assert f'cannot load "{path}" ({path.stat().st_size} bytes): a name in it is not valid UTF-8' in refused(
        model=str(path)
    )


def test_a_file_without_read_permission_is_an_error(models, monkeypatch):
    path = models.double()

    def denied(file, names):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)

    monkeypatch.setattr(session, "find_model_files", denied)
    assert f'OnnxTensor: "{path}" cannot be read: Permission denied' in refused(model=str(path))
