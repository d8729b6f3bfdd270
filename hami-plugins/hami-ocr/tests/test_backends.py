"""DetectText, CropLines, OrientText, RecognizeText and GatherLines: each backend alone, and its errors."""

from __future__ import annotations

import hami
import numpy as np
import pytest


@pytest.fixture
def run():
    """run("Backend", {parameters}, data=…) builds a pipe, sends one request and returns it."""
    pipes = []

    def run(backend: str, params: dict | None = None, **request):
        pipes.append(hami.pipe({"backend": backend, **(params or {})}))
        return pipes[-1](request)

    yield run
    for pipe in pipes:
        pipe.close()


def refused(run, error_type, backend, **request) -> str:
    """Return the first line of the error for a request."""
    with pytest.raises(error_type) as error:
        run(backend, **request)
    return str(error.value).splitlines()[0]


def test_the_backends_recognise_a_page_step_by_step(run, page):
    detected = run("DetectText", data=page)["result"]
    assert detected["boxes"].shape == detected["page_boxes"].shape == (7, 4, 2)
    lines = run("CropLines", data=detected)["result"]
    assert [set(line) for line in lines] == [{"image", "ratio", "box"}] * 7
    upright = run("OrientText", data=lines[0])["result"]
    assert np.array_equal(upright["image"], lines[0]["image"])
    read = run("RecognizeText", data=upright)["result"]
    assert read["text"] == "Region-based segmentation"
    assert read["box"] == lines[0]["box"]
    assert run("GatherLines", data=[read])["result"] == [read]


def test_detection_computes_the_same_tensor_as_rapidocr():
    from hami_ocr._rapidocr import Detector

    detector = Detector("test", 0, "cpu", None, None)
    image = np.random.default_rng(2).integers(0, 256, (64, 96, 3), np.uint8)
    preprocess = detector._stage.get_preprocess()
    expected = preprocess.permute(preprocess.normalize(image))[np.newaxis].astype(np.float32)
    assert np.array_equal(detector.to_tensor(image), expected)


def test_a_line_that_is_upside_down_is_rotated(run, page):
    line = run("CropLines", data=run("DetectText", data=page)["result"])["result"][0]
    rotated = {**line, "image": np.ascontiguousarray(line["image"][::-1, ::-1])}
    assert np.array_equal(run("OrientText", data=rotated)["result"]["image"], line["image"])


def test_a_higher_box_threshold_finds_fewer_boxes(run, page):
    detected = run("DetectText", {"box_thresh": 0.9999}, data=page)["result"]
    assert len(detected["boxes"]) < 7


def test_empty_lines_and_lines_below_text_score_are_removed(run):
    lines = [{"text": text, "score": score, "box": []} for text, score in [("a", 0.9), (" ", 0.9), ("b", 0.4)]]
    assert [line["text"] for line in run("GatherLines", data=lines)["result"]] == ["a"]
    assert [line["text"] for line in run("GatherLines", {"text_score": 0.3}, data=lines)["result"]] == ["a", "b"]


@pytest.mark.parametrize("backend", ["DetectText", "CropLines", "OrientText", "RecognizeText", "GatherLines"])
def test_a_request_without_data_is_an_error(run, backend):
    text = refused(run, hami.RequestError, backend, page=1)
    assert text.startswith(f'{backend}: the request has no key "data"; its keys are [')


@pytest.mark.parametrize(
    ("backend", "data", "text"),
    [
        (
            "DetectText",
            b"bytes",
            'DetectText: "data" must be an image (uint8 array H x W x 3, as DecodeMat returns), got bytes',
        ),
        (
            "DetectText",
            np.zeros((4, 4, 3), np.float32),
            'DetectText: "data" must be an image (uint8 array H x W x 3, as DecodeMat returns), got float32 [4, 4, 3]',
        ),
        (
            "CropLines",
            {"image": 1},
            'CropLines: "data" must be a result of DetectText (a dict with "image", "boxes" and "page_boxes"), '
            "got a dict with the keys ['image']",
        ),
        (
            "OrientText",
            5,
            'OrientText: "data" must be a line of CropLines (a dict with "image", "ratio" and "box"), got int',
        ),
        (
            "RecognizeText",
            "text",
            'RecognizeText: "data" must be a line of CropLines (a dict with "image", "ratio" and "box"), got str',
        ),
        ("GatherLines", 5, 'GatherLines: "data" must be a list of lines, got int'),
        (
            "GatherLines",
            [5],
            'GatherLines: each line must be a result of RecognizeText (a dict with "text", "score" and "box"), got int',
        ),
    ],
)
def test_data_of_a_wrong_type_is_a_data_type_error(run, backend, data, text):
    assert refused(run, hami.DataTypeError, backend, data=data) == text


LINE = {"image": np.zeros((32, 99, 3), np.uint8), "ratio": 3.1, "box": []}
BAD_IMAGE = 'the "image" of a line must be a uint8 array H x W x 3, got '
BAD_RATIO = 'the "ratio" of a line must be a finite number above 0 (width / height), got '


@pytest.mark.parametrize("backend", ["OrientText", "RecognizeText"])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"image": None}, BAD_IMAGE + "NoneType"),
        ({"image": np.zeros((0, 9, 3), np.uint8)}, BAD_IMAGE + "uint8 [0, 9, 3]"),
        ({"image": np.zeros((9, 9), np.uint8)}, BAD_IMAGE + "uint8 [9, 9]"),
        ({"ratio": 0}, BAD_RATIO + "0"),
        ({"ratio": float("nan")}, BAD_RATIO + "nan"),
        ({"ratio": "wide"}, BAD_RATIO + "'wide'"),
    ],
)
def test_an_invalid_line_is_a_data_type_error(run, backend, wrong, text):
    assert refused(run, hami.DataTypeError, backend, data={**LINE, **wrong}) == f"{backend}: {text}"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"image": 3}, '"image" must be a uint8 image, got int'),
        ({"boxes": None}, '"boxes" must be n x 4 x 2 finite coordinates, got NoneType'),
        (
            {"boxes": np.full((1, 4, 2), np.nan)},
            '"boxes" must be n x 4 x 2 finite coordinates, got float64 [1, 4, 2]',
        ),
        (
            {"page_boxes": np.zeros((3, 4, 2))},
            '"page_boxes" must be n x 4 x 2 finite coordinates, got float64 [3, 4, 2]',
        ),
    ],
)
def test_an_invalid_result_of_detection_is_a_data_type_error(run, wrong, text):
    detected = {"image": LINE["image"], "boxes": np.zeros((1, 4, 2)), "page_boxes": np.zeros((1, 4, 2)), **wrong}
    assert refused(run, hami.DataTypeError, "CropLines", data=detected).endswith("; " + text)


def test_an_invalid_text_or_score_is_a_data_type_error(run):
    assert refused(run, hami.DataTypeError, "GatherLines", data=[{"text": None, "score": "high", "box": []}]) == (
        'GatherLines: each line must be a result of RecognizeText (a dict with "text", "score" and "box"); '
        '"text" must be a str and "score" a number, got NoneType and str'
    )


@pytest.mark.parametrize("shape", [(10, 20_000, 3), (20_000, 10, 3), (64, 9_000)])
def test_a_page_that_rapidocr_would_scale_to_nothing_is_refused(run, shape):
    text = refused(run, hami.RequestError, "DetectText", data=np.full(shape, 255, np.uint8))
    assert text == (
        f"DetectText: the image is {shape[1]} x {shape[0]}; rapidocr scales the longer side to 2000, "
        "and the shorter side would have no pixels; split the image into shorter parts"
    )


@pytest.mark.parametrize(
    ("backend", "params", "text"),
    [
        ("DetectText", {"box_thresh": float("nan")}, '"box_thresh" must be a score from 0 to 1, got nan'),
        ("DetectText", {"box_thresh": 2}, '"box_thresh" must be a score from 0 to 1, got 2.0'),
        ("DetectText", {"unclip_ratio": float("nan")}, '"unclip_ratio" must be a number above 0, got nan'),
        ("DetectText", {"unclip_ratio": 0}, '"unclip_ratio" must be a number above 0, got 0.0'),
        ("GatherLines", {"text_score": -1}, '"text_score" must be a score from 0 to 1, got -1.0'),
    ],
)
def test_a_parameter_out_of_range_is_a_config_error(backend, params, text):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": backend, **params})
    assert str(error.value).splitlines()[0] == f"{backend}: {text}"


def test_an_empty_image_is_refused(run):
    text = refused(run, hami.RequestError, "DetectText", data=np.zeros((0, 4, 3), np.uint8))
    assert text == "DetectText: the image is empty, its shape is [0, 4, 3]"


def test_a_missing_model_is_an_error_and_nothing_is_downloaded(monkeypatch, tmp_path):
    from importlib.metadata import version

    from hami_ocr import _rapidocr

    monkeypatch.setattr(_rapidocr.rapid, "root_dir", tmp_path)
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "RecognizeText"})
    models = tmp_path / "models"
    assert f"RecognizeText: the installed rapidocr {version('rapidocr')} lacks its model " in str(error.value)
    assert "nothing is downloaded at run time: pip install --force-reinstall rapidocr" in str(error.value)
    assert not models.exists()


def test_an_unknown_provider_is_an_error():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "DetectText", "provider": "gpu"})
    assert 'DetectText: "gpu" is not an execution provider of onnxruntime; use one of cpu, cuda' in str(error.value)


def test_the_log_level_of_rapidocr_is_restored():
    import logging

    from hami_ocr._rapidocr import Orienter

    logger = logging.getLogger("RapidOCR")
    level = logger.level
    Orienter("test", 0, "cpu")
    assert logger.level == level
