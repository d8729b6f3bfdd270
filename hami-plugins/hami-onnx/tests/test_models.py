"""Opening a model: files that are none, providers that are not there, threads, and sessions shared and freed."""

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

from hami_onnx import _threads, session
from hami_onnx._files import path_and_stamps
from hami_onnx.session import open_session


def refused(**parameters) -> str:
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", **parameters})
    return str(error.value)


def test_a_model_that_does_not_exist_is_named(tmp_path):
    path = tmp_path / "none.onnx"
    assert f'OnnxTensor: there is no model file "{path}" (looked for {path})' in refused(model=str(path))


def test_a_folder_is_no_model(tmp_path):
    assert f'OnnxTensor: "model" is the path of an ONNX file, "{tmp_path}" is a folder' in refused(model=str(tmp_path))


def test_a_path_that_no_file_can_have_is_refused():
    assert "OnnxTensor: \"model\" is the path of an ONNX file, 'a\\x00b.onnx' holds a NUL" in refused(model="a\0b.onnx")


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_truncated_model_is_named_with_its_size(models, part):
    path = models.double()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    text = refused(model=str(path))
    assert f'OnnxTensor: "{path}" ({path.stat().st_size} bytes) is truncated or is not an ONNX model: ' in text


@pytest.mark.parametrize(("content", "reason"), [(b"no model", "Protobuf parsing failed."), (b"", "the file is empty")])
def test_a_file_that_is_no_model_is_named_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "text.onnx"
    path.write_bytes(content)
    assert f'OnnxTensor: "{path}" ({len(content)} bytes) is truncated or is not an ONNX model: {reason}' in refused(
        model=str(path)
    )


def test_a_model_that_onnxruntime_cannot_run_says_why(tmp_path):
    from conftest import save
    from onnx import TensorProto, helper

    port = (TensorProto.FLOAT, ["n"])
    path = save(tmp_path / "odd.onnx", [helper.make_node("NoSuchOperator", ["x"], ["y"])], {"x": port}, {"y": port})
    text = refused(model=str(path))
    assert f'OnnxTensor: onnxruntime {onnxruntime.__version__} cannot load "{path}"' in text
    assert "NoSuchOperator" in text


@pytest.mark.parametrize("kinds", ["FLOAT BFLOAT16", "BFLOAT16 FLOAT", "FLOAT FLOAT8E5M2", "FLOAT8E5M2 FLOAT"])
def test_a_type_that_numpy_does_not_have_is_told_when_the_model_is_opened(tmp_path, kinds):
    from conftest import save
    from onnx import TensorProto, helper

    taken, given = (getattr(TensorProto, kind) for kind in kinds.split())
    cast = helper.make_node("Cast", ["x"], ["y"], to=given)
    path = save(tmp_path / "cast.onnx", [cast], {"x": (taken, ["n"])}, {"y": (given, ["n"])}, opset=19)
    name, kind = ("y", kinds.split()[1]) if taken == TensorProto.FLOAT else ("x", kinds.split()[0])
    assert (
        f'OnnxTensor: "{name}" of the model is tensor({kind.lower()}), which NumPy does not have; '
        "give the model float32 there, with a Cast behind its inputs or before its outputs"
    ) in refused(model=str(path))


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA is installed here")
@pytest.mark.parametrize("name", ["cuda", "CUDA", "CUDAExecutionProvider"])
def test_a_provider_that_is_not_installed_is_never_replaced_by_the_cpu(models, name):
    text = refused(model=str(models.double()), provider=name)
    assert (
        f'OnnxTensor: provider "{name}" (CUDAExecutionProvider) is not in the installed onnxruntime '
        f"{onnxruntime.__version__}, which has "
    ) in text
    assert "cpu; use one of these, or: pip uninstall onnxruntime && pip install onnxruntime-gpu" in text


def test_a_provider_that_does_not_exist_is_named(models):
    assert 'OnnxTensor: "gpu" is no execution provider of onnxruntime; there are cpu, cuda, ' in refused(
        model=str(models.double()), provider="gpu"
    )


def test_a_provider_that_onnxruntime_gave_up_is_an_error(models, monkeypatch):
    """onnxruntime drops a provider whose libraries are missing and goes on with the CPU: seen in get_providers()."""
    monkeypatch.setattr(session, "full_name", lambda provider, owner: "CUDAExecutionProvider")
    opened = onnxruntime.InferenceSession(str(models.double()), providers=["CPUExecutionProvider"])
    monkeypatch.setattr(session.onnxruntime, "InferenceSession", lambda *args, **options: opened)
    with pytest.raises(hami.ConfigError) as error:
        open_session(models.double(), provider="cuda", owner="OnnxTensor")
    assert str(error.value) == (
        f'OnnxTensor: provider CUDAExecutionProvider could not be started for "{models.double()}", onnxruntime fell '
        "back to CPUExecutionProvider; its log above says what is missing (driver or libraries of the device)"
    )


def test_provider_names_are_short_or_full(models):
    for name in ("cpu", " CPU ", "CPUExecutionProvider"):
        with hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "provider": name}) as pipe:
            assert pipe({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_provider_options_are_key_and_value(models):
    text = refused(model=str(models.double()), provider_options=["device_id"])
    assert "OnnxTensor: \"provider_options\" are written key=value, got 'device_id'" in text


@pytest.mark.parametrize("threads", [-1, 4097, 1_000_000])
def test_a_number_of_threads_that_no_machine_has_is_refused(models, threads):
    text = refused(model=str(models.double()), threads=threads)
    assert f'OnnxTensor: "threads" is 0 (all cores this process may use) to 4096, got {threads}' in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_opens_a_session_of_its_own(models):
    """The threads of the parent's sessions are not in the child, nor is a thread that opens a model just now."""
    path = models.double()
    opened = open_session(path)
    with session._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(open_session(path) is opened)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert open_session(path) is opened


def test_a_model_opened_twice_is_one_session(models):
    path = models.double()
    assert open_session(path) is open_session(str(path))
    assert open_session(path, threads=1) is not open_session(path, threads=2)


def test_a_model_that_was_written_anew_is_opened_anew(models):
    first = open_session(models.double())
    assert open_session(models.double(width=17)) is not first


def test_closing_the_pipe_frees_the_session(models):
    path = models.double()
    pipe = hami.pipe({"backend": "OnnxTensor", "model": str(path), "instance_num": 2})
    pipe({"data": np.ones((1, 2), np.float32)})
    session = weakref.ref(open_session(path))
    gc.collect()
    assert session() is not None
    pipe.close()
    gc.collect()
    assert session() is None


def test_threads_are_what_the_process_may_use(models, monkeypatch, tmp_path):
    monkeypatch.setattr(_threads.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    for text, cores in [
        ("max 100000\n", 16),
        ("250000 100000\n", 3),
        ("50000 100000\n", 1),
        ("nonsense", 16),
    ]:
        quota = tmp_path / "cpu.max"
        quota.write_text(text)
        monkeypatch.setattr(_threads, "_QUOTA", quota)
        assert _threads.usable_cores() == cores
    monkeypatch.setattr(_threads, "_QUOTA", tmp_path / "absent")
    assert _threads.usable_cores() == 16


def test_threads_reach_the_session(models):
    assert open_session(models.double(), threads=3).get_session_options().intra_op_num_threads == 3
    assert open_session(models.double()).get_session_options().intra_op_num_threads == _threads.usable_cores()


def with_weights_outside(folder, factor, name="weights.bin"):
    """y = x times `factor`, which lies in a file beside the model."""
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


def answer(model) -> list[list[float]]:
    with hami.pipe({"backend": "OnnxTensor", "model": str(model)}) as pipe:
        return pipe({"data": np.ones((1, 2), np.float32)})["result"].tolist()


def test_a_model_of_links_finds_its_weights_beside_the_link(tmp_path):
    path = with_weights_outside(tmp_path / "blobs", 3)
    links = tmp_path / "links"
    links.mkdir()
    for file, blob in ((path, "aaa"), (path.with_name("weights.bin"), "bbb")):
        (links / file.name).symlink_to(file.rename(file.with_name(blob)))
    assert answer(links / "model.onnx") == [[3, 3]]


def test_a_link_to_a_model_finds_the_weights_beside_the_model(tmp_path):
    link = tmp_path / "latest.onnx"
    link.symlink_to(with_weights_outside(tmp_path / "v3", 3))
    assert answer(link) == [[3, 3]]
    assert open_session(link) is open_session(tmp_path / "v3" / "model.onnx")


@pytest.mark.parametrize("name", ["weights.bin", "w" * 200])
def test_weights_that_were_replaced_are_read_anew(tmp_path, name):
    path = with_weights_outside(tmp_path, 3, name)
    opened = open_session(path)
    assert answer(path) == [[3, 3]]
    assert open_session(path) is opened
    other = with_weights_outside(tmp_path / "other", 5, name)
    other.with_name(name).replace(path.with_name(name))
    assert answer(path) == [[5, 5]]


def test_weights_are_found_wherever_the_model_names_them(tmp_path):
    pair = b"\n\x08location\x12\x05w.bin"
    model = tmp_path / "model"
    (tmp_path / "w.bin").touch()
    for start in (2**20 - 12, 2**20 - len(pair), 2**20 + 5):
        model.write_bytes(b"0" * start + pair)
        assert [stamp.path for stamp in path_and_stamps(str(model))[1]] == [str(model), str(tmp_path / "w.bin")]


def test_names_that_are_no_text_are_told_with_the_file(models):
    path = models.double()
    path.write_bytes(path.read_bytes().replace(b"\x0a\x01x", b"\x0a\x01\xff"))
    assert f"cannot load \"{path}\" ({path.stat().st_size} bytes): 'utf-8' codec can't decode byte 0xff" in refused(
        model=str(path)
    )


def test_a_file_that_may_not_be_read_is_told_so(models, monkeypatch):
    path = models.double()

    def denied(file):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)

    monkeypatch.setattr(session, "path_and_stamps", denied)
    assert f'OnnxTensor: "{path}" cannot be read: Permission denied' in refused(model=str(path))
