"""Arrays in results of `hami run`: values of small ones, files with large ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import hami
import pytest
from hami._cli.arrays import ArrayWriter
from hami._cli.main import main

np = pytest.importorskip("numpy", reason="numpy is not installed")


@hami.register("TestArrays")
class Arrays(hami.Backend):
    """Sets `result` to an array of the core with the shape in `data`."""

    dtype: str = "float32"
    as_dict: bool = False

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            shape = item["data"]
            array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(self.dtype)
            with hami.pipe("ContiguousTensor") as pipe:
                tensor = pipe({"data": array})["result"]
            item["result"] = {"scores": tensor, "label": "cat"} if self.as_dict else tensor


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `hami run` in an empty folder and return its output; it must succeed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        status = main(["run", *arguments])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return run


def test_small_arrays_are_printed_with_their_values(run: Any) -> None:
    assert run("TestArrays", "--data", "[1, 3]") == "[[0, 1, 2]]\n"
    assert run("TestArrays(as_dict=true)", "--data", "[3]") == "scores: [0, 1, 2]\nlabel: cat\n"
    assert run("TestArrays", "--data", "[33]") == "float32 array, shape 33: 0, 1, 2, 3, 4, 5, 6, 7, …\n"
    assert run("TestArrays", "--data", "[4]", "--max-values", "3") == "float32 array, shape 4: 0, 1, 2, 3\n"
    assert run("TestArrays", "--data", "[33]", "--max-values", "33").startswith("[0, 1, 2, 3,")


def test_json_has_the_values_of_arrays_up_to_the_limit(run: Any) -> None:
    assert json.loads(run("TestArrays", "--json", "--data", "[2, 2]"))["result"] == [[0, 1], [2, 3]]
    assert len(json.loads(run("TestArrays", "--json", "--data", "[100000]"))["result"]) == 100_000
    described = {"dtype": "float32", "shape": [100, 1001], "first": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert json.loads(run("TestArrays", "--json", "--data", "[100, 1001]"))["result"] == described
    result = json.loads(run("TestArrays(as_dict=true)", "--json", "--data", "[3]", "--max-values", "2"))["result"]
    assert result == {"scores": {"dtype": "float32", "shape": [3], "first": [0, 1, 2]}, "label": "cat"}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"])
def test_large_arrays_are_written_as_npy(run: Any, dtype: str) -> None:
    path = "out/data.npy"
    text = run(f"TestArrays(dtype={dtype})", "--data", "[5, 8]", "--output", "out")
    assert text == f"{dtype} array, shape 5x8: {path}\n"
    assert np.array_equal(np.load(path), np.arange(40).reshape(5, 8).astype(dtype))
    assert np.load(path).dtype == dtype


def test_each_array_gets_a_file_of_its_own(run: Any) -> None:
    lines = run(
        "TestArrays(as_dict=true)", "--data", "[40]", "--data", "[41]", "--json", "--max-values", "9", "--output", "o"
    )
    found = [json.loads(line)["result"]["scores"] for line in lines.splitlines()]
    assert found == [
        {"dtype": "float32", "shape": [40], "file": "o/data.scores.npy"},
        {"dtype": "float32", "shape": [41], "file": "o/data.scores-2.npy"},
    ]
    assert [np.load(each["file"]).shape for each in found] == [(40,), (41,)]


def test_images_are_written_as_png(tmp_path: Path) -> None:
    image_of = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    writer = ArrayWriter(0, tmp_path)

    def read(array: Any, **keys: Any) -> Any:
        file = writer.replace({"result": array, **keys}, "photo.jpg", json=True)["file"]
        return np.asarray(image_of.open(io.BytesIO(Path(file).read_bytes())))

    assert np.array_equal(read(pixels), pixels)
    assert np.array_equal(read(pixels, color="bgr"), pixels[:, :, ::-1])
    assert np.array_equal(read(pixels.transpose(2, 0, 1)[None]), pixels)
    assert np.array_equal(read(pixels[:, :, 0]), pixels[:, :, 0])
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"photo{number}.png" for number in ("-2", "-3", "-4", "")
    ]
    assert writer.replace({"result": np.zeros((9, 9, 7), np.uint8)}, "x", json=True)["file"] == f"{tmp_path}/x.npy"


def test_an_encoded_image_is_written_as_it_is(tmp_path: Path) -> None:
    result = ArrayWriter(3, tmp_path).replace({"result": b"\xff\xd8\xff\xe0"}, "a/b c.png", json=False)
    assert result == f"4 bytes: {tmp_path}/b_c.jpg"
    assert (tmp_path / "b_c.jpg").read_bytes() == b"\xff\xd8\xff\xe0"


def test_tensors_of_torch_are_written_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        facts = ArrayWriter(1, tmp_path).replace({"result": torch.ones(3, 2).T.to(dtype)}, "x", json=True)
        assert (facts["dtype"], facts["shape"]) == (str(dtype).removeprefix("torch."), [2, 3])
        assert np.array_equal(np.load(facts["file"]), np.ones((2, 3), np.float32))


def test_a_dtype_without_a_name_in_npy_files_is_written_as_float32(tmp_path: Path) -> None:
    with hami.pipe("FixTensor(dtype=bfloat16)") as pipe:
        tensor = pipe({"data": np.array([[1, 2]], np.uint8)})["result"]
    facts = ArrayWriter(1, tmp_path).replace({"result": tensor}, "x", json=True)
    assert np.load(facts["file"]).tolist() == [[1.0, 2.0]]


def test_an_array_of_a_type_without_a_file_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hami.DataTypeError) as raised:
        ArrayWriter(1, tmp_path).replace({"result": np.array(["cat", "dog"])}, "x", json=True)
    assert str(raised.value) == "cannot write an array of <U3 to a file"


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert main(["run", "Identity", "--data", "1", "--output", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f'error: --output takes a folder, cannot use "{tmp_path}/file": File exists\n'
    with pytest.raises(SystemExit):
        main(["run", "Identity", "--data", "1", "--max-values", "few"])
    assert capsys.readouterr().err.endswith("argument --max-values: expected a number from 0 on, got 'few'\n")


def test_npy_and_npz_files_are_arrays(run: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.float32([[1, 2, 3]]))
    np.savez(tmp_path / "two.npz", a=np.int64([3]), b=np.array(["text"]))
    assert run("Identity", str(tmp_path / "rows.npy")) == "[[1, 2, 3]]\n"
    assert run("Identity", str(tmp_path / "two.npz")) == "a: [3]\nb: [text]\n"


@pytest.mark.parametrize("name", ["junk.npy", "junk.npz", "objects.npy"])
def test_a_file_without_arrays_is_an_error_of_its_request(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b"junk")
    if name == "objects.npy":
        np.save(tmp_path / name, np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "z.npy", np.float32([1]))
    assert main(["run", "Identity", str(tmp_path)]) == 1
    found = capsys.readouterr()
    assert f"{name}: is not a {Path(name).suffix} file with arrays of numbers or text" in found.err
    assert found.out.endswith("z.npy:\n  [1]\n")


def test_a_number_of_json_out_of_range_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "Identity", "--data", "[1e400]"]) == 1
    assert "1e400 is outside of the range of float64" in capsys.readouterr().err
