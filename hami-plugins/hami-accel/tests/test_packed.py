"""Recipes, packed files, and `hami compare`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami
import numpy as np
import pytest

from hami_accel import AccelModel
from hami_accel.packed import is_packed, open_packed, read_manifest, write_packed

pytest.importorskip("onnxruntime")

from models import SHAPES, Builder

from hami_accel.onnx_device.device import OnnxDevice

RECIPE = """
[[model]]
name = "exact"
file = "net.onnx"
max_time_per_fc = 500
inputs = { x = { dtype = "float32", shape = [1, 3, 32, 32], layout = "NCHW" } }

[[model]]
name = "small"
file = "net.onnx"
quantization = "qdq"
calibration = "calibration"
"""


def main(arguments):
    """Run `hami` and return its exit code."""
    return subprocess.call([sys.executable, "-m", "hami", *arguments])


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    SHAPES["chain_of_convolutions"](tmp_path / "net.onnx")
    (tmp_path / "calibration").mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        np.save(tmp_path / "calibration" / f"{number}.npy", rng.standard_normal((1, 3, 32, 32)).astype(np.float32))
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_becomes_a_packed_file_with_a_readable_manifest(recipe, capfd):
    assert main(["compile", str(recipe)]) == 0
    packed = recipe.with_suffix(".accel")
    assert "exact" in capfd.readouterr().out
    with zipfile.ZipFile(packed) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest == read_manifest(packed)
    assert [(m["name"], m["quantization"]) for m in manifest["models"]] == [("exact", "none"), ("small", "qdq")]
    x = np.ones((1, 3, 32, 32), np.float32)
    results = []
    for select in (0, 1, "small"):
        with AccelModel(packed, select=select, device=OnnxDevice(threads=1)) as model:
            summary = model.summary()
            assert summary["models"] == ["exact", "small"]
            assert summary["select"] == min(1, ("exact", "small").index(model.name))
            results.append(model(x))
    assert np.array_equal(results[1], results[2])
    assert not np.array_equal(results[0], results[1])


def test_verify_prints_the_differences_of_a_quantised_and_of_an_exact_model(recipe, capfd):
    assert main(["compile", str(recipe), "-o", str(recipe.parent / "m.accel")]) == 0
    net, packed = str(recipe.parent / "net.onnx"), str(recipe.parent / "m.accel")
    capfd.readouterr()
    assert main(["compare", net, packed, "--random", "5", "--atol", "1e-5"]) == 0
    header, row = capfd.readouterr().out.splitlines()
    assert header.split() == ["output", "Cosine", "Similarity", "np.max", "np.min", "np.mean"]
    assert row.split()[1] == "1.0000"
    calibration = str(recipe.parent / "calibration")
    assert main(["compare", net, packed, "--select-b", "1", "--inputs", calibration]) == 0
    row = capfd.readouterr().out.splitlines()[1].split()
    assert 0.99 <= float(row[1]) <= 1
    assert float(row[2]) > float(row[4]) > 0
    for limit in (["--atol", "1e-9"], ["--rtol", "1e-9"], ["--cosine", "1"]):
        assert main(["compare", net, packed, "--select-b", "1", "--random", "2", *limit]) == 1
        assert "beyond the limits" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("one", "other", "limits", "status"),
    [
        ("1", "nan", [], 1),
        ("nan", "nan", ["--atol", "0", "--rtol", "0"], 0),
        ("inf", "inf", ["--atol", "0", "--rtol", "0"], 0),
        ("inf", "-inf", [], 1),
        ("inf", "1", ["--atol", "1e9", "--rtol", "1", "--cosine", "-1"], 1),
        ("1", "nan", ["--atol", "1e9", "--rtol", "1e9"], 1),
    ],
)
def test_a_number_beside_nan_or_infinity_is_beyond_every_limit(tmp_path, capfd, one, other, limits, status):
    from onnx import TensorProto, helper, save

    paths = []
    for name, value in (("a", one), ("b", other)):
        graph = helper.make_graph(
            [helper.make_node("Mul", ["x", "zero"], ["z"]), helper.make_node("Add", ["z", "c"], ["y"])],
            "constant",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
            [
                helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
                helper.make_tensor("c", TensorProto.FLOAT, [2], [1.0, float(value)]),
            ],
        )
        paths.append(str(tmp_path / f"{name}.onnx"))
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), paths[-1])
    assert main(["compare", *paths, "--random", "3", *limits]) == status, capfd.readouterr()


def test_compile_and_verify_print_json(recipe, capfd):
    net, packed = str(recipe.parent / "net.onnx"), str(recipe.parent / "m.accel")
    assert main(["compile", str(recipe), "-o", packed, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "output": packed,
        "models": [{"name": "exact", "quantization": "none"}, {"name": "small", "quantization": "qdq"}],
    }
    assert main(["compare", net, packed, "--random", "2", "--atol", "1e-5", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["exceeded"] == []
    (output,) = found["outputs"]
    assert output["cosine"] == pytest.approx(1, abs=1e-4)
    assert output["min"] <= output["mean"] <= output["max"]
    assert main(["compare", net, packed, "--select-b", "1", "--random", "2", "--atol", "0", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["exceeded"] == [output["name"]]


def test_models_that_do_not_correspond_are_not_compared(recipe, capfd):
    other = SHAPES["perceptron"](recipe.parent / "other.onnx")
    assert main(["compare", str(recipe.parent / "net.onnx"), str(other)]) == 1
    assert "the inputs of the models differ" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["dynamic", "static", "qdq"])
def test_every_quantisation_of_onnxruntime_runs(recipe, kind):
    recipe.write_text(f'[[model]]\nfile = "net.onnx"\nquantization = "{kind}"\ncalibration = "calibration"\n')
    from hami_accel.recipe import compile_recipe

    (entry,) = compile_recipe(recipe, recipe.with_suffix(".accel"))
    assert entry["quantization"] == kind
    with AccelModel(recipe.with_suffix(".accel"), device=OnnxDevice(threads=1)) as model:
        assert model(np.ones((1, 3, 32, 32), np.float32)).shape == (1, 16, 32, 32)


def test_a_recipe_in_yaml_is_read(recipe):
    pytest.importorskip("yaml")
    from hami_accel.recipe import compile_recipe

    path = recipe.with_suffix(".yaml")
    path.write_text("model:\n  - {name: a, file: net.onnx}\n")
    assert compile_recipe(path, recipe.with_suffix(".accel"))[0]["name"] == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a recipe"),
        ("model = 3", "must be a list of tables"),
        ("[[model]]\nname = 'a'", "with a file"),
        ("[[model]]\nfile = 'net.onnx'\nspeed = 3", "takes .* got .*speed"),
        ("[[model]]\nfile = 'none.onnx'", "cannot be read"),
        ("[[model]]\nfile = 'net.onnx'\nquantization = 'int3'", "quantization must be one of"),
        ("[[model]]\nfile = 'net.onnx'\nquantization = 'static'", 'needs "calibration"'),
        ("[[model]]\nfile = 'net.onnx'\nquantization = 'static'\ncalibration = 'cache'", "has no .npy"),
        ("[[model]]\nfile = 'net.onnx'\ninputs = {z = {}}", "the model has the inputs"),
        ("[[model]]\nfile = 'net.onnx'\ninputs = {x = {dtype = 'int8'}}", "is float32, got int8"),
        ("[[model]]\nfile = 'net.onnx'\ninputs = {x = {size = 3}}", "got .*size"),
    ],
)
def test_a_wrong_recipe_is_named_and_writes_nothing(recipe, text, message):
    from hami_accel.recipe import compile_recipe

    recipe.write_text(text)
    with pytest.raises(hami.ConfigError, match=message):
        compile_recipe(recipe, recipe.with_suffix(".accel"))
    assert not recipe.with_suffix(".accel").exists()


def test_a_recipe_that_is_not_text_is_named(recipe):
    from hami_accel.recipe import compile_recipe

    recipe.write_bytes(b'[[model]]\nname = "\xff"\n')
    with pytest.raises(hami.ConfigError, match=r"recipe\.toml\" is not text in UTF-8"):
        compile_recipe(recipe, recipe.with_suffix(".accel"))


def test_calibration_data_of_the_wrong_shape_are_named(recipe):
    from hami_accel.recipe import compile_recipe

    np.save(recipe.parent / "calibration" / "9.npy", np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(hami.ConfigError, match=r'9\.npy" has float32 \[1, 3, 16, 16\] for "x", which takes'):
        compile_recipe(recipe, recipe.with_suffix(".accel"))


def test_without_onnx_the_error_says_what_to_install(recipe, monkeypatch):
    from hami_accel import platform
    from hami_accel.recipe import compile_recipe

    monkeypatch.setattr(platform, "_devices", {})
    monkeypatch.setitem(sys.modules, "hami_accel.onnx_device.device", None)
    with pytest.raises(hami.ConfigError, match=r"'onnx' needs the module .*: pip install \"hami-accel\[onnx\]\""):
        compile_recipe(recipe, recipe.with_suffix(".accel"))


def test_a_damaged_or_later_packed_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    b = Builder()
    model = b.save(tmp_path / "net.onnx", b("Relu", b.input("x", [1, 4]))).read_bytes()
    path = tmp_path / "m.accel"
    write_packed(path, [({"name": "a"}, model)])
    whole = path.read_bytes()
    with AccelModel(path, device=OnnxDevice()) as loaded:
        assert loaded.name == "a"
    path.write_bytes(whole[:-30])
    with pytest.raises(hami.ConfigError, match="is truncated or is not a packed model file"):
        AccelModel(path, device=OnnxDevice())
    path.write_bytes(whole.replace(model[-20:], bytes(20)))
    with pytest.raises(hami.ConfigError, match="truncated or is not"):
        AccelModel(path, device=OnnxDevice())
    path.write_bytes(whole)
    for wrong in (1, -1, "b"):
        with pytest.raises(hami.ConfigError, match="select must be 0 to 0 or one of"):
            AccelModel(path, select=wrong, device=OnnxDevice())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format": "hami-accel", "version": 2, "models": [{}]}))
    with pytest.raises(hami.ConfigError, match="install a newer hami-accel"):
        AccelModel(path, device=OnnxDevice())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "text")
    with pytest.raises(hami.ConfigError, match=r"m\.accel"):  # the error of the device
        AccelModel(path, device=OnnxDevice())


@pytest.mark.parametrize("home", ["none", "not a folder"])
def test_a_user_without_a_home_folder_loads_packed_files(tmp_path, monkeypatch, home):
    for name in ("HAMI_ACCEL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if home == "none":
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
    else:
        (tmp_path / "home").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    b = Builder()
    model = b.save(tmp_path / "net.onnx", b("Relu", b.input("x", [1, 4]))).read_bytes()
    write_packed(tmp_path / "m.accel", [({"name": "a"}, model)])
    with AccelModel(tmp_path / "m.accel", device=OnnxDevice()) as loaded:
        assert loaded.name == "a"
    with AccelModel(tmp_path / "net.onnx", device=OnnxDevice(), max_time_per_fc=500) as loaded:
        assert loaded.inputs


def test_a_file_of_the_cache_with_other_bytes_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_packed(tmp_path / "m.accel", [({"name": "a"}, b"model")])
    cached = Path(open_packed(tmp_path / "m.accel", 0).path)
    cached.write_bytes(b"\0" * len(b"model"))
    assert Path(open_packed(tmp_path / "m.accel", 0).path).read_bytes() == b"model"
    assert cached.is_relative_to(tmp_path)


def test_a_full_disk_leaves_no_part_of_a_model_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("hami_accel.packed.tempfile.mkdtemp", lambda prefix: str(tmp_path / "cache"))
    data = bytes(1 << 16)
    write_packed(tmp_path / "m.accel", [({"name": "a"}, data)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        with pytest.raises(
            hami.ConfigError, match=r"cannot be written to the cache or to .*: File too large; free some"
        ):
            open_packed(tmp_path / "m.accel", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == []


def test_only_an_archive_with_a_manifest_is_a_packed_file(tmp_path):
    """Files of torch are ZIP archives too, and go to the device."""
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/version", "1")
    assert not is_packed(path)
    with zipfile.ZipFile(path, "a") as archive:  # of a tool that has sorted the members in another way
        archive.writestr("manifest.json", "{}")
    assert is_packed(path)
    write_packed(path, [({"name": "a"}, b"model")])
    assert is_packed(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert is_packed(path)
    path.write_bytes(b"PK\x03\x04 and no archive")
    assert not is_packed(path)
    assert not is_packed(tmp_path / "missing")
    assert not is_packed(b"bytes")


def test_a_model_with_weights_in_another_file_is_packed_with_them(tmp_path, monkeypatch, capfd):
    import onnx
    from onnx import numpy_helper

    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    b = Builder()
    b.save(tmp_path / "net.onnx", b("Add", b.input("x", [1, 4]), "w"))
    model = onnx.load(tmp_path / "net.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.array([[1, 2, 3, 4]], np.float32), "w"))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    assert (tmp_path / "net.data").stat().st_size == 16
    (tmp_path / "recipe.toml").write_text('[[model]]\nfile = "net.onnx"\n')
    assert main(["compile", str(tmp_path / "recipe.toml")]) == 0
    for name in ("net.onnx", "net.data"):
        (tmp_path / name).unlink()
    with AccelModel(tmp_path / "recipe.accel", device=OnnxDevice()) as packed:
        assert np.array_equal(packed(np.zeros((1, 4), np.float32)), [[1, 2, 3, 4]])


def test_weights_that_are_missing_are_named(tmp_path, monkeypatch, capfd):
    import onnx
    from onnx import numpy_helper

    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    b = Builder()
    b.save(tmp_path / "net.onnx", b("Add", b.input("x", [1, 4]), "w"))
    model = onnx.load(tmp_path / "net.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 4), np.float32), "w"))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    (tmp_path / "net.data").unlink()
    (tmp_path / "recipe.toml").write_text('[[model]]\nfile = "net.onnx"\n')
    assert main(["compile", str(tmp_path / "recipe.toml")]) != 0
    assert not (tmp_path / "recipe.accel").exists()
    assert "net.data" in capfd.readouterr().err


def damaged(path, key, value):
    """Change one value of the manifest; the key may be one of the manifest, or of its model after a dot."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        data = archive.read("0.onnx")
    place = manifest["models"][0] if key.startswith("model.") else manifest
    place[key.removeprefix("model.")] = value
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("0.onnx", data)


VALUES = [
    10**400,
    None,
    True,
    -1,
    1e400,
    float("nan"),
    "text",
    "",
    [],
    [1],
    {},
    {"x": 1},
    {"x": [[]]},
    {"x": "NCHW"},
    {"x": "\x1b[31m"},
    "\x1b[31m",
    [[]],
    1 << 80,
]
KEYS = [
    "format", "version", "models", "model.name", "model.file", "model.sha256", "model.max_time_per_fc", "model.shapes",
    "model.layouts",
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [("model.name", "\x1b[31mnet"), ("model.name", "a\nb"), ("model.layouts", {"x": "\u202eNCHW"})]
)
def test_a_text_of_the_manifest_that_a_terminal_obeys_is_refused(key, value, tmp_path, monkeypatch):
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.accel"
    write_packed(path, [({"name": "a"}, b"model")])
    damaged(path, key, value)
    with pytest.raises(hami.ConfigError, match="has control characters") as caught:
        open_packed(path, 0)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", KEYS)
def test_a_manifest_with_a_value_of_another_kind_is_a_typed_error(key, tmp_path, monkeypatch):
    """Or the model opens, where the value is one that it may have."""
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    b = Builder()
    model = b.save(tmp_path / "net.onnx", b("Relu", b.input("x", [1, 4]))).read_bytes()
    path = tmp_path / "m.accel"
    refused = 0
    for value in VALUES:
        write_packed(path, [({"name": "a"}, model)])
        damaged(path, key, value)
        try:
            AccelModel(path, device=OnnxDevice()).close()
        except hami.Error:
            refused += 1
    assert refused > len(VALUES) // 3


def test_every_byte_of_the_structure_may_be_damaged(tmp_path, monkeypatch):
    """The error is typed, or the file is read as before."""
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.accel"
    write_packed(path, [({"name": "a"}, b"model")])
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        if is_packed(path):
            with contextlib.suppress(hami.ConfigError):
                open_packed(path, 0)
        path.write_bytes(whole[:at])
        if is_packed(path):
            with pytest.raises(hami.ConfigError):
                open_packed(path, 0)


def test_only_this_user_can_write_into_the_cache_with_every_umask(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    write_packed(tmp_path / "m.accel", [({"name": "a"}, b"model")])
    before = os.umask(0)
    try:
        folder = Path(open_packed(tmp_path / "m.accel", 0).path).parent
    finally:
        os.umask(before)
    made = [folder, folder.parent, folder.parent.parent]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3


def test_a_packed_file_takes_the_place_of_a_file_only(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(hami.ConfigError, match="cannot be written: it is not a regular file"):
            write_packed(path, [({"name": "a"}, b"model")])
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_keeps_its_place_and_a_file_its_mode_when_they_are_packed_again(tmp_path):
    file, link = tmp_path / "m.accel", tmp_path / "link"
    write_packed(file, [({"name": "a"}, b"old")])
    file.chmod(0o600)
    link.symlink_to(file.name)
    write_packed(link, [({"name": "b"}, b"new")])
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_manifest(file)["models"][0]["name"] == "b"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "m.accel"]


def test_files_that_are_packed_at_once_do_not_disturb_each_other(tmp_path):
    file = tmp_path / "m.accel"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: write_packed(file, [({"name": "a"}, b"model" * 1000)]), range(400)))
    assert read_manifest(file)["models"][0]["name"] == "a"
    assert [each.name for each in tmp_path.iterdir()] == ["m.accel"]
