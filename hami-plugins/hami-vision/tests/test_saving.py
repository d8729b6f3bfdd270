"""SaveFolder: what counts as complete, and what a rerun makes again."""

from __future__ import annotations

import cv2
import pytest
from small_models import picture

from hami_vision import Detections
from hami_vision.saving import LabelWriter, SaveFolder
from hami_vision.sources import Frame

FOUND = Detections([[8, 8, 24, 24]], [0.5], [0])


def frame(source: object, index: int = 0) -> Frame:
    return Frame(str(source), index, picture(("red", 8, 8)), index / 10, index / 10)


def test_a_source_one_of_whose_results_is_not_written_is_never_complete(tmp_path, monkeypatch):
    video = tmp_path / "a.webm"
    video.write_bytes(b"1")
    out = tmp_path / "out"
    with SaveFolder(out) as save:
        save(frame(video), FOUND)
        with monkeypatch.context() as patch:
            patch.setattr(LabelWriter, "write", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                save(frame(video, 1), FOUND)
        save(frame(video, 2), FOUND)
        assert save.has_failed(str(video))
        with pytest.raises(OSError, match=r"a\.webm do not have all results"):
            save.complete(str(video))
    assert {file.name for file in out.iterdir()} == {"a.part.jsonl", "a.part.webm"}
    assert not SaveFolder(out).is_complete(str(video))


def test_a_file_that_grows_while_it_is_read_is_read_again(tmp_path):
    video = tmp_path / "a.webm"
    video.write_bytes(b"1")
    with SaveFolder(tmp_path / "out") as save:
        save(frame(video), FOUND)
        video.write_bytes(b"12")
        save.complete(str(video))
        assert not save.is_complete(str(video))
        save(frame(video), FOUND)
        save.complete(str(video))
    assert SaveFolder(tmp_path / "out").is_complete(str(video))


def test_a_folder_with_a_picture_that_has_changed_is_read_again(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    cv2.imwrite(str(folder / "one.png"), picture(("red", 8, 8)))
    with SaveFolder(tmp_path / "out") as save:
        save(frame(folder), FOUND)
        save.complete(str(folder))
        assert save.is_complete(str(folder))
        cv2.imwrite(str(folder / "one.png"), picture(("red", 8, 8), ("blue", 40, 40)))
        assert not save.is_complete(str(folder))


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": {}}', '{"settings": {}, "complete": {"a": 1}}'])
def test_a_folder_of_another_program_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(OSError, match=r"run\.json does not say which results are complete; use another folder"):
        SaveFolder(tmp_path)


def test_a_source_that_is_called_like_an_unfinished_file_gets_files_of_its_own(tmp_path):
    with SaveFolder(tmp_path) as save:
        for source in ("a.webm", "old/a.part.webm"):
            for i in range(2):
                save(frame(source, i), FOUND)
        save.complete("a.webm")
        save.complete("old/a.part.webm")
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.webm",
        "a.jsonl",
        "a_part.webm",
        "a_part.jsonl",
        "run.json",
    }
    assert [len((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in ("a", "a_part")] == [2, 2]
