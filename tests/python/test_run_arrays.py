"""Arrays in results of `hami run`: values of small ones, files with large ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hami
import pytest
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


def test_a_wrong_limit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "Identity", "--data", "1", "--max-values", "few"])
    assert capsys.readouterr().err.endswith(
        "argument --max-values: expected a number from 0 to 2147483647, got 'few'\n"
    )


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
