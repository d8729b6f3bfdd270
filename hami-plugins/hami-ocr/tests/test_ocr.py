"""The pipeline `ocr`: its text is that of rapidocr, for one page and for many, and bad pages fail alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cv2
import hami
import numpy as np
import pytest

VARIANTS = {
    "as scanned": lambda page: page,
    "upside down": lambda page: cv2.rotate(page, cv2.ROTATE_180),
    "rotated by 90 degrees": lambda page: cv2.rotate(page, cv2.ROTATE_90_CLOCKWISE),
    "larger than the limit of rapidocr": lambda page: cv2.resize(page, None, fx=6, fy=6),
    "a low strip, which is padded": lambda page: page[:25],
    "more lines than one batch of rapidocr": lambda page: np.vstack([page, page]),
    "blank": lambda page: np.full((100, 100, 3), 255, np.uint8),
    "a tiny image": lambda page: page[:3, :3],
}


def assert_same_lines(lines, expected):
    assert [line["text"] for line in lines] == [line["text"] for line in expected]
    assert [line["box"] for line in lines] == [line["box"] for line in expected]
    assert [line["score"] for line in lines] == pytest.approx([line["score"] for line in expected], abs=1e-4)


def test_the_text_is_what_is_printed_on_the_page(ocr, page_file):
    lines = ocr({"data": page_file.read_bytes()})["result"]
    assert lines[0]["text"] == "Region-based segmentation"
    assert lines[0]["score"] > 0.99
    assert len(lines) == 7
    assert all(set(line) == {"text", "score", "box"} for line in lines)


def test_the_lines_of_an_image_file_are_those_of_rapidocr(ocr, page_file, rapidocr_lines):
    assert_same_lines(ocr({"data": page_file.read_bytes()})["result"], rapidocr_lines(page_file.read_bytes()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lines_of_each_kind_of_page_are_those_of_rapidocr(ocr, page, as_png, rapidocr_lines, variant):
    image = np.ascontiguousarray(VARIANTS[variant](page))
    assert_same_lines(ocr({"data": as_png(image)})["result"], rapidocr_lines(image))


def test_the_lines_of_a_transparent_page_are_those_of_rapidocr(ocr, page, as_png, rapidocr_lines):
    ink = 255 - cv2.cvtColor(page, cv2.COLOR_BGR2GRAY)
    data = as_png(np.dstack([np.zeros_like(page), ink]))  # black text on a transparent background
    expected = rapidocr_lines(data)
    assert len(expected) > 3
    assert_same_lines(ocr({"data": data})["result"], expected)


def test_the_lines_of_a_gray_page_are_those_of_rapidocr(ocr, page, as_png, rapidocr_lines):
    data = as_png(cv2.cvtColor(page, cv2.COLOR_BGR2GRAY))
    assert_same_lines(ocr({"data": data})["result"], rapidocr_lines(data))


def test_pages_of_other_threads_do_not_change_the_lines(ocr, page, as_png, rapidocr_lines):
    images = [np.ascontiguousarray(page[: 60 + 20 * i]) for i in (0, 5)] + [page, cv2.rotate(page, cv2.ROTATE_180)]
    files = [as_png(image) for image in images]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda data: ocr({"data": data})["result"], files))
    for lines, image in zip(results, images, strict=True):
        assert_same_lines(lines, rapidocr_lines(image))


def test_other_pages_of_the_call_do_not_change_the_lines(ocr, page_file, page, as_png):
    data = page_file.read_bytes()
    alone = ocr({"data": data})["result"]
    blank = as_png(np.full((60, 60, 3), 255, np.uint8))
    requests = [{"data": data}, {"data": blank}, {"data": data}]
    ocr(requests)
    assert [request["result"] for request in requests] == [alone, [], alone]


def test_the_request_keeps_its_other_keys(ocr, page_file):
    data = page_file.read_bytes()
    request = ocr({"data": data, "name": "page 1"})
    assert request["data"] == data
    assert request["name"] == "page 1"


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", hami.RequestError, 'DecodeMat: "data" is empty (0 bytes); give the bytes of an image file'),
        (
            b"not an image...",
            hami.RequestError,
            "DecodeMat: \"data\" is not an image file: 15 bytes that start with b'not an image'; "
            "give the bytes of a JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000 file",
        ),
        (
            7,
            hami.DataTypeError,
            'DecodeMat: "data" must be the bytes of an image file, as Path.read_bytes() returns, got int',
        ),
    ],
)
def test_an_invalid_page_fails_and_the_next_page_succeeds(ocr, page_file, data, kind, text):
    request = {"data": data, "result": "stale"}
    with pytest.raises(kind) as error:
        ocr(request)
    assert str(error.value).splitlines()[0] == text
    assert "result" not in request
    assert len(ocr({"data": page_file.read_bytes()})["result"]) == 7


def test_an_invalid_page_does_not_fail_the_other_pages_of_its_call(ocr, page_file):
    requests = [{"data": page_file.read_bytes()}, {"data": b"bad"}, {"data": page_file.read_bytes()}]
    with pytest.raises(hami.BatchError) as error:
        ocr(requests)
    assert [index for index, _ in error.value.errors] == [1]
    assert len(requests[0]["result"]) == len(requests[2]["result"]) == 7
    assert "result" not in requests[1]
