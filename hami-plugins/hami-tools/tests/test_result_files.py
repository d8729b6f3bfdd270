"""Files with the large arrays in results of `hami run --output`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run
from hami.cli import main

from hami_tools.result_files import ResultFiles

np = pytest.importorskip("numpy", reason="numpy is not installed")


@hami.register("TestWritten")
class Arrays(hami.Backend):
    """Sets `result` to an array of the core with the shape in `data`."""

    dtype: str = "float32"
    as_dict: bool = False
    bgr: bool = False

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            shape = item["data"]
            array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(self.dtype)
            with hami.pipe("ContiguousTensor") as pipe:
                tensor = pipe({"data": array})["result"]
            item["color"] = "bgr" if self.bgr else "rgb"
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


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"])
def test_large_arrays_are_written_as_npy(run: Any, dtype: str) -> None:
    path = "out/data.npy"
    text = run(f"TestWritten(dtype={dtype})", "--data", "[5, 8]", "--output", "out")
    assert text == f"{dtype} array, shape 5x8: {path}\n"
    assert np.array_equal(np.load(path), np.arange(40).reshape(5, 8).astype(dtype))
    assert np.load(path).dtype == dtype


def test_each_array_gets_a_file_of_its_own(run: Any) -> None:
    lines = run(
        "TestWritten(as_dict=true)", "--data", "[40]", "--data", "[41]", "--json", "--max-values", "9", "--output", "o"
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
    files = ResultFiles(tmp_path)

    def read(array: Any, *, swap_colors: bool = False) -> Any:
        file = files.write(array, "photo", swap_colors=swap_colors)
        return np.asarray(image_of.open(io.BytesIO(file.read_bytes())))

    assert np.array_equal(read(pixels), pixels)
    assert np.array_equal(read(pixels, swap_colors=True), pixels[:, :, ::-1])
    assert np.array_equal(read(pixels.transpose(2, 0, 1)[None]), pixels)
    assert np.array_equal(read(pixels[:, :, 0]), pixels[:, :, 0])
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"photo{number}.png" for number in ("-2", "-3", "-4", "")
    ]
    assert files.write(np.zeros((9, 9, 7), np.uint8), "x") == tmp_path / "x.npy"


def test_an_encoded_image_is_written_as_it_is(run: Any, tmp_path: Path) -> None:
    (tmp_path / "b c.png").write_bytes(b"\xff\xd8\xff\xe0")
    assert run("Identity", "b c.png", "--max-values", "3", "--output", "o") == "4 bytes: o/b_c.jpg\n"
    assert (tmp_path / "o" / "b_c.jpg").read_bytes() == b"\xff\xd8\xff\xe0"


def test_the_color_of_a_request_reaches_its_file(run: Any) -> None:
    image_of = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    assert run("TestWritten(dtype=uint8)", "--data", "[4, 5, 3]", "--output", "o").endswith(": o/data.png\n")
    assert run("TestWritten(dtype=uint8, bgr=true)", "--data", "[4, 5, 3]", "--output", "b").endswith(": b/data.png\n")
    assert np.array_equal(np.asarray(image_of.open("o/data.png")), np.asarray(image_of.open("b/data.png"))[:, :, ::-1])


def test_tensors_of_torch_are_written_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        file = ResultFiles(tmp_path).write(torch.ones(3, 2).T.to(dtype), "x")
        assert np.array_equal(np.load(file), np.ones((2, 3), np.float32))


def test_a_dtype_without_a_name_in_npy_files_is_written_as_float32(tmp_path: Path) -> None:
    with hami.pipe("FixTensor(dtype=bfloat16)") as pipe:
        tensor = pipe({"data": np.array([[1, 2]], np.uint8)})["result"]
    assert np.load(ResultFiles(tmp_path).write(tensor, "x")).tolist() == [[1.0, 2.0]]


def test_an_array_of_a_type_without_a_file_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hami.DataTypeError) as raised:
        ResultFiles(tmp_path).write(np.array(["cat", "dog"]), "x")
    assert str(raised.value) == "cannot write an array of <U3 to a file"


def test_a_file_is_not_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert main(["run", "Identity", "--data", "1", "--output", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f'error: --output takes a folder, cannot use "{tmp_path}/file": File exists\n'


def test_without_its_package_the_error_names_it(hami_command: Run) -> None:
    done = hami_command("run", "Identity", "--data", "1", "--output", "out", HAMI_PLUGINS="no:tools")
    assert done.stderr == "error: --output needs hami-tools, which is disabled by HAMI_PLUGINS=no:tools\n"
    assert (done.stdout, done.returncode) == ("", 1)
