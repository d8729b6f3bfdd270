"""The sources of TorchModel: torch.export, AOTInductor, TorchScript and factories, and which of them are rejected."""

from __future__ import annotations

import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami
import hami.config
import pytest
import torch
from helpers import Double, Scaled, message

import hami_torch
from hami_torch._signature import exported_signature

X = torch.tensor([[1.0, 2.0]])


def export(path, rows="free", module=None):
    dims = {"x": {0: torch.export.Dim("n", max=8)}} if rows == "free" else None
    example = torch.zeros(2 if rows == "free" else rows, 2)
    torch.export.save(torch.export.export(module or Double(), (example,), dynamic_shapes=dims), path)
    return str(path)


def script(path, module=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of torch deprecate TorchScript
        torch.jit.save(torch.jit.trace(module or Double(), X), path)
    return str(path)


@pytest.fixture(autouse=True)
def _old_formats():
    """Ignore the warnings of newer torch versions about TorchScript, which hami-torch still supports."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        warnings.filterwarnings("ignore", message=".*TorchScript.*|.*torch.jit.*")
        yield


def test_an_exported_program_runs_batches_up_to_its_exported_limit(pipe, tmp_path):
    program = pipe("TorchModel", model=export(tmp_path / "m.pt2"), batching="greedy")
    requests = [{"data": X * i} for i in range(16)]
    program(requests)
    assert [request["result"].tolist() for request in requests] == [[[2.0 * i, 4.0 * i]] for i in range(16)]
    assert program.stats()["default"].batches == 2


def test_an_exported_program_with_a_fixed_batch_gets_exactly_that_many_rows(pipe, tmp_path):
    program = pipe("TorchModel", model=export(tmp_path / "m.pt2", rows=2), batching_timeout="10s")
    requests = [{"data": X}, {"data": X}]
    program(requests)
    assert [request["result"].tolist() for request in requests] == [[[2, 4]], [[2, 4]]]


def test_an_exported_program_reads_its_inputs_by_name_and_names_those_that_it_lacks(pipe, tmp_path):
    program = pipe("TorchModel", model=export(tmp_path / "m.pt2"))
    assert program({"x": X})["result"].tolist() == [[2, 4]]
    assert pipe("TorchModel", model=export(tmp_path / "m.pt2"), inputs=["x"])({"data": 0, "x": X})[
        "result"
    ].tolist() == [[2, 4]]
    with pytest.raises(hami.RequestError) as raised:
        program({"y": X})
    assert message(raised) == (
        'TorchModel: the request has no key "data", and none of the model\'s inputs ["x"]; its keys are ["y"]'
    )
    with pytest.raises(hami.RequestError) as raised:
        program({"data": {"y": X}})
    assert message(raised) == "TorchModel: the model has the inputs ['x'], got a dict with the keys ['y']"


class Two(torch.nn.Module):
    def forward(self, a, b):
        return {"total": a + b, "rest": (a - b).to(torch.int64)}


def test_the_file_of_an_exported_program_declares_its_inputs_and_outputs(pipe, tmp_path):
    batch = torch.export.Dim("batch")
    shapes = {"a": {0: batch}, "b": {0: batch}}
    torch.export.save(torch.export.export(Two(), (X.repeat(2, 1),) * 2, dynamic_shapes=shapes), tmp_path / "two.pt2")
    program = pipe("TorchModel", model=str(tmp_path / "two.pt2"), device="cpu")
    port = {"dtype": "float32", "shape": [-1, 2]}
    assert hami.config.signature(program.describe()) == {
        "inputs": [{"name": "a", **port}, {"name": "b", **port}],
        "outputs": [{"name": "total", **port}, {"name": "rest", **port, "dtype": "int64"}],
    }
    assert exported_signature(export(tmp_path / "m.pt2"))["outputs"] == [{"name": "result", **port}]
    assert exported_signature(script(tmp_path / "m.pt")) is None


def test_a_model_file_runs_on_the_cpu_where_torch_sees_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("hami_torch._device._built_with_cuda", lambda: False)
    with hami.pipe(export(tmp_path / "m.pt2")) as program:
        assert program({"data": [1, 2]})["result"].tolist() == [2, 4]


def test_an_exported_program_refuses_a_dtype_that_would_lose_values(pipe, tmp_path):
    with pytest.raises(hami.DataTypeError) as raised:
        pipe("TorchModel", model=export(tmp_path / "m.pt2"), cast="safe")({"data": X.double()})
    assert message(raised) == (
        'TorchModel: input "x" expects float32, got float64, which cannot be converted without loss; call '
        ".to(torch.float32) on the data to accept the loss"
    )


def test_an_exported_program_can_be_converted_to_another_dtype(pipe, tmp_path):
    program = pipe("TorchModel", model=export(tmp_path / "m.pt2", module=Scaled()), dtype="bfloat16")
    result = program({"data": X})["result"]
    assert result.dtype == torch.bfloat16
    assert result.tolist() == [[3, 6]]


@pytest.mark.parametrize(
    ("module", "name", "write", "warning"),
    [
        (
            torch.export,
            "m.pt2",
            export,
            UserWarning("The given buffer is not writable, and PyTorch does not support …"),
        ),
        (torch.jit, "m.pt", script, DeprecationWarning("`torch.jit.load` is deprecated. Please switch to …")),
        (torch.jit, "m.pt", script, FutureWarning("`torch.jit.load` is deprecated. Please switch to …")),
    ],
)
def test_warnings_of_torch_about_its_loaders_are_not_errors(pipe, tmp_path, monkeypatch, module, name, write, warning):
    load, path = module.load, write(tmp_path / name)

    def warning_load(*arguments, **options):
        warnings.warn(warning, stacklevel=2)
        return load(*arguments, **options)

    monkeypatch.setattr(module, "load", warning_load)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pipe("TorchModel", model=path)({"data": X})["result"].tolist() == [[2, 4]]


@pytest.mark.parametrize("name", ["m.pt", "m.torchscript"])
def test_torchscript_runs(pipe, tmp_path, name):
    assert pipe("TorchModel", model=script(tmp_path / name), row_shape=[2], max=4)({"data": X})["result"].tolist() == [
        [2, 4]
    ]


@pytest.mark.skipif(not hasattr(torch._inductor, "aoti_load_package"), reason="this torch has no AOTInductor packages")
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles with g++, which is not installed")
def test_an_aotinductor_package_runs_on_the_device_it_is_compiled_for(pipe, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Scaled(), (torch.zeros(2, 2),), dynamic_shapes={"x": {0: torch.export.Dim("n", max=8)}}
        )
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "m.pt2"))
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=path)
    assert message(raised) == (
        "model of TorchModel, an AOTInductor package, loads native code, which a configuration may do only from "
        f'allowed files; allow "{path}" by HAMI_ALLOWED_LIBRARIES in the environment, or by hami.native.allow_library'
    )
    hami.native.allow_library(path)
    requests = [{"data": X}, {"data": X * 2}]
    pipe("TorchModel", model=path, row_shape=[2], max=4, batching="greedy")(requests)
    assert [request["result"].tolist() for request in requests] == [[[3, 6]], [[6, 12]]]
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=path, dtype="float16")
    assert message(raised) == (
        f'TorchModel: "{path}" is an AOTInductor package, which is already compiled; remove "dtype" and "channels_last"'
    )


def test_a_factory_gets_its_arguments_and_its_weights(pipe, tmp_path):
    weights = tmp_path / "weights.pt"
    torch.save({"weight": torch.tensor(5.0)}, weights)
    program = pipe("TorchModel", factory="helpers:Scaled", arguments=["bias=1.5"], weights=str(weights))
    assert program({"data": X})["result"].tolist() == [[6.5, 11.5]]


def test_a_factory_may_open_another_program(pipe):
    with ThreadPoolExecutor(1) as thread:
        program = thread.submit(pipe, "TorchModel", factory="helpers:OpensAnotherPipe").result(60)
    assert program({"data": X})["result"].tolist() == [[2, 4]]


@pytest.mark.parametrize(("name", "missing"), [("nowhere", "nowhere"), ("helpers.nowhere.deep", "helpers.nowhere")])
def test_a_missing_factory_module_is_named_with_the_remedy(pipe, monkeypatch, name, missing):
    monkeypatch.setenv("HAMI_ALLOWED_FACTORIES", "nowhere, other")
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory=f"{name}:make")
    assert message(raised) == (
        f'TorchModel: module "{missing}" of factory "{name}:make" not found on sys.path; add its folder to PYTHONPATH, '
        "or pass the file to the hami command with --import FILE"
    )


def test_a_configuration_alone_does_not_choose_a_factory(pipe, tmp_path, monkeypatch):
    (tmp_path / "not_listed.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="not_listed:make", arguments=["x=1"])
    assert message(raised) == (
        'TorchModel: factory "not_listed:make" is not allowed: it runs code, which a configuration alone cannot '
        'choose. Call hami_torch.allow_factory("not_listed") in the program or in its module, or set the environment '
        "variable HAMI_ALLOWED_FACTORIES=not_listed"
    )


@pytest.mark.parametrize("path", ["torch.tensor", "message.__globals__", "torch.nn.functional.warnings.warn"])
def test_an_allowed_module_does_not_allow_what_it_imports(pipe, path):
    with pytest.raises(hami.ConfigError, match=r"not allowed.*HAMI_ALLOWED_FACTORIES=helpers:"):
        pipe("TorchModel", factory=f"helpers:{path}")


def test_one_factory_is_allowed_by_its_full_name(pipe, monkeypatch):
    monkeypatch.setenv("HAMI_ALLOWED_FACTORIES", "helpers:torch.nn.Identity,collections:Counter")
    assert pipe("TorchModel", factory="helpers:torch.nn.Identity")({"data": X})["result"].tolist() == X.tolist()
    with pytest.raises(hami.ConfigError, match=r"must return a torch.nn.Module, got Counter"):
        pipe("TorchModel", factory="collections:Counter")
    with pytest.raises(hami.ConfigError, match=r'"collections:OrderedDict" is not allowed'):
        pipe("TorchModel", factory="collections:OrderedDict")


def test_names_of_factories_are_checked():
    with pytest.raises(ValueError, match=r'got "my-models"'):
        hami_torch.allow_factory("my-models")


@pytest.mark.parametrize("kind", ["export", "script"])
def test_a_truncated_file_is_rejected(pipe, tmp_path, kind):
    whole = tmp_path / ("m.pt2" if kind == "export" else "m.pt")
    (export if kind == "export" else script)(whole)
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=str(whole))
    assert message(raised) == (
        f'TorchModel: "{whole}" ({whole.stat().st_size} bytes) is truncated or not a program; expected a file '
        "written by torch.export.save, torch._inductor.aoti_compile_and_package or torch.jit.save"
    )


def test_a_file_of_weights_is_rejected_as_a_program(pipe, tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"weight": torch.ones(1)}, path)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=str(path))
    assert message(raised) == (
        f'TorchModel: "{path}" contains weights, not a program; pass it as "weights", together with the '
        '"factory" that makes the module'
    )


def test_an_archive_without_a_program_is_rejected(pipe, tmp_path):
    path = tmp_path / "m.pt2"
    shutil.make_archive(str(tmp_path / "m"), "zip", tmp_path)
    (tmp_path / "m.zip").rename(path)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=str(path))
    assert message(raised).startswith(f'TorchModel: torch {torch.__version__} cannot load "{path}": ')


NEEDS = 'TorchModel needs either "model" (a .pt2 or TorchScript file) or "factory" (package.module:name)'


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, f"{NEEDS}; neither is set"),
        ({"model": "m.pt2", "factory": "helpers:Double"}, f"{NEEDS}; both are set"),
        (
            {"model": "m.pt2", "weights": "w.pt"},
            'TorchModel: "weights" and "arguments" can only be used with "factory"; the file "model" contains its '
            "weights",
        ),
        ({"factory": "helpers"}, 'TorchModel: "factory" must have the form package.module:name, got "helpers"'),
        (
            {"factory": "helpers:Nothing"},
            'TorchModel: factory "helpers:Nothing" failed: AttributeError: '
            "module 'helpers' has no attribute 'Nothing'",
        ),
        (
            {"factory": "helpers:returns_text"},
            'TorchModel: factory "helpers:returns_text" must return a torch.nn.Module, got str',
        ),
        (
            {"factory": "helpers:Double", "arguments": ["bias"]},
            'TorchModel: each entry of "arguments" must have the form key=value, got "bias"',
        ),
    ],
)
def test_an_invalid_source_is_rejected(pipe, tmp_path, monkeypatch, config, text):
    monkeypatch.chdir(tmp_path)
    for name in ("m.pt2", "w.pt"):
        Path(name).touch()
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", **config)
    assert message(raised) == text


def test_a_missing_file_is_named(pipe, tmp_path):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=str(tmp_path / "m.pt2"))
    path = tmp_path / "m.pt2"
    assert message(raised) == f'parameter "model" of TorchModel: file "{path}" does not exist (looked for {path})'
