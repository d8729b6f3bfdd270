"""DetectText, CropLines, OrientText, RecognizeText, GatherLines: each by itself, and what each refuses."""

from __future__ import annotations

import hami
import numpy as np
import pytest


@pytest.fixture
def run():
    """run("Backend", data=…, params={…}) -> the request afterwards."""
    pipes = []

    def call(backend: str, params: dict | None = None, **request):
        pipes.append(hami.pipe({"backend": backend, **(params or {})}))
        return pipes[-1](request)

    yield call
    for pipe in pipes:
        pipe.close()


def refused(run, kind, backend, **request) -> str:
    with pytest.raises(kind) as error:
        run(backend, **request)
    return str(error.value).splitlines()[0]


def test_the_steps_one_by_one_read_the_page(run, page):
    found = run("DetectText", data=page)["result"]
    assert found["boxes"].shape == found["page_boxes"].shape == (7, 4, 2)
    lines = run("CropLines", data=found)["result"]
    assert [set(line) for line in lines] == [{"image", "ratio", "box"}] * 7
    upright = run("OrientText", data=lines[0])["result"]
    assert np.array_equal(upright["image"], lines[0]["image"])
    read = run("RecognizeText", data=upright)["result"]
    assert read["text"] == "Region-based segmentation"
    assert read["box"] == lines[0]["box"]
    assert run("GatherLines", data=[read])["result"] == [read]


def test_detection_normalises_exactly_as_rapidocr_does():
    from hami_ocr._rapidocr import Detector

    detector = Detector("test", 0, "cpu", None, None)
    picture = np.random.default_rng(2).integers(0, 256, (64, 96, 3), np.uint8)
    prepare = detector._stage.get_preprocess()
    expected = prepare.permute(prepare.normalize(picture))[np.newaxis].astype(np.float32)
    assert np.array_equal(detector.tensor(picture), expected)


def test_a_line_on_its_head_is_turned(run, page):
    line = run("CropLines", data=run("DetectText", data=page)["result"])["result"][0]
    turned = {**line, "image": np.ascontiguousarray(line["image"][::-1, ::-1])}
    assert np.array_equal(run("OrientText", data=turned)["result"]["image"], line["image"])


def test_a_higher_box_threshold_finds_fewer_boxes(run, page):
    found = run("DetectText", {"box_thresh": 0.9999}, data=page)["result"]
    assert len(found["boxes"]) < 7


def test_gathering_drops_empty_lines_and_those_below_the_score(run):
    lines = [{"text": text, "score": score, "box": []} for text, score in [("a", 0.9), (" ", 0.9), ("b", 0.4)]]
    assert [line["text"] for line in run("GatherLines", data=lines)["result"]] == ["a"]
    assert [line["text"] for line in run("GatherLines", {"text_score": 0.3}, data=lines)["result"]] == ["a", "b"]


@pytest.mark.parametrize("backend", ["DetectText", "CropLines", "OrientText", "RecognizeText", "GatherLines"])
def test_missing_data_is_named(run, backend):
    text = refused(run, hami.RequestError, backend, page=1)
    assert text.startswith(f'{backend}: the request has no "data"; its keys are [')


@pytest.mark.parametrize(
    ("backend", "data", "text"),
    [
        (
            "DetectText",
            b"bytes",
            "DetectText takes a picture (a uint8 array H x W x 3, as DecodeMat gives), got bytes",
        ),
        (
            "DetectText",
            np.zeros((4, 4, 3), np.float32),
            "DetectText takes a picture (a uint8 array H x W x 3, as DecodeMat gives), got float32 [4, 4, 3]",
        ),
        (
            "CropLines",
            {"image": 1},
            'CropLines takes what DetectText gives, a dict with "image", "boxes" and "page_boxes", '
            "got a dict with the keys ['image']",
        ),
        (
            "OrientText",
            5,
            'OrientText takes a line of CropLines, a dict with "image", "ratio" and "box", got int',
        ),
        (
            "RecognizeText",
            "text",
            'RecognizeText takes a line of CropLines, a dict with "image", "ratio" and "box", got str',
        ),
        ("GatherLines", 5, "GatherLines takes a list of lines, got int"),
        (
            "GatherLines",
            [5],
            'GatherLines takes lines of RecognizeText, dicts with "text", "score" and "box", got int',
        ),
    ],
)
def test_data_of_a_wrong_type_is_a_data_type_error(run, backend, data, text):
    assert refused(run, hami.DataTypeError, backend, data=data) == text


LINE = {"image": np.zeros((32, 99, 3), np.uint8), "ratio": 3.1, "box": []}
NO_LINE = 'the "image" of a line is a uint8 array H x W x 3, got '
NO_RATIO = 'the "ratio" of a line is its width to its height, got '


@pytest.mark.parametrize("backend", ["OrientText", "RecognizeText"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"image": None}, NO_LINE + "NoneType"),
        ({"image": np.zeros((0, 9, 3), np.uint8)}, NO_LINE + "uint8 [0, 9, 3]"),
        ({"image": np.zeros((9, 9), np.uint8)}, NO_LINE + "uint8 [9, 9]"),
        ({"ratio": 0}, NO_RATIO + "0"),
        ({"ratio": float("nan")}, NO_RATIO + "nan"),
        ({"ratio": "wide"}, NO_RATIO + "'wide'"),
    ],
)
def test_a_line_that_cannot_be_worked_on_is_a_data_type_error(run, backend, wrong, text):
    assert refused(run, hami.DataTypeError, backend, data={**LINE, **wrong}) == f"{backend}: {text}"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"image": 3}, '"image" is a picture, got int'),
        ({"boxes": None}, '"boxes" has the finite corners of each line, n x 4 x 2, got NoneType'),
        (
            {"boxes": np.full((1, 4, 2), np.nan)},
            '"boxes" has the finite corners of each line, n x 4 x 2, got float64 [1, 4, 2]',
        ),
        (
            {"page_boxes": np.zeros((3, 4, 2))},
            '"page_boxes" has the finite corners of each line, n x 4 x 2, got float64 [3, 4, 2]',
        ),
    ],
)
def test_boxes_that_are_none_are_a_data_type_error(run, wrong, text):
    found = {"image": LINE["image"], "boxes": np.zeros((1, 4, 2)), "page_boxes": np.zeros((1, 4, 2)), **wrong}
    assert refused(run, hami.DataTypeError, "CropLines", data=found).endswith("; " + text)


def test_a_text_that_is_none_is_a_data_type_error(run):
    assert refused(run, hami.DataTypeError, "GatherLines", data=[{"text": None, "score": "high", "box": []}]) == (
        'GatherLines takes lines of RecognizeText, dicts with "text", "score" and "box": a str and a number, '
        "got NoneType and str"
    )


@pytest.mark.parametrize("shape", [(10, 20_000, 3), (20_000, 10, 3), (64, 9_000)])
def test_a_page_of_which_rapidocr_would_leave_nothing_is_refused(run, shape):
    text = refused(run, hami.RequestError, "DetectText", data=np.full(shape, 255, np.uint8))
    assert text == (
        f"DetectText: the picture is {shape[1]} x {shape[0]}; rapidocr makes the longer side 2000, "
        "and nothing is left of the shorter one; cut it into parts that are less long"
    )


@pytest.mark.parametrize(
    ("backend", "params", "text"),
    [
        ("DetectText", {"box_thresh": float("nan")}, '"box_thresh" is a score from 0 to 1, got nan'),
        ("DetectText", {"box_thresh": 2}, '"box_thresh" is a score from 0 to 1, got 2.0'),
        ("DetectText", {"unclip_ratio": float("nan")}, '"unclip_ratio" is a number above 0, got nan'),
        ("DetectText", {"unclip_ratio": 0}, '"unclip_ratio" is a number above 0, got 0.0'),
        ("GatherLines", {"text_score": -1}, '"text_score" is a score from 0 to 1, got -1.0'),
    ],
)
def test_a_parameter_out_of_range_is_a_config_error(backend, params, text):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": backend, **params})
    assert str(error.value).splitlines()[0] == f"{backend}: {text}"


def test_an_empty_picture_is_refused(run):
    text = refused(run, hami.RequestError, "DetectText", data=np.zeros((0, 4, 3), np.uint8))
    assert text == "DetectText: the picture is empty, its shape is [0, 4, 3]"


def test_a_missing_model_is_named_and_nothing_is_downloaded(monkeypatch, tmp_path):
    from importlib.metadata import version

    from hami_ocr import _rapidocr

    monkeypatch.setattr(_rapidocr.rapid, "root_dir", tmp_path)
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "RecognizeText"})
    models = tmp_path / "models"
    assert f"RecognizeText: rapidocr {version('rapidocr')} was installed without its model " in str(error.value)
    assert "nothing is downloaded at run time: pip install --force-reinstall rapidocr" in str(error.value)
    assert not models.exists()


def test_a_provider_that_is_not_installed_is_an_error():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "DetectText", "provider": "gpu"})
    assert 'DetectText: "gpu" is not an execution provider of onnxruntime; use one of cpu, cuda' in str(error.value)


def test_rapidocr_is_not_told_to_be_quiet_for_good():
    import logging

    from hami_ocr._rapidocr import Orienter

    logger = logging.getLogger("RapidOCR")
    level = logger.level
    Orienter("test", 0, "cpu")
    assert logger.level == level
