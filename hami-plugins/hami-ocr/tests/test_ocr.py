"""The pipeline `ocr`: reads what rapidocr reads, alone and among other pages, and refuses what is no page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cv2
import hami
import numpy as np
import pytest

VARIANTS = {
    "as scanned": lambda page: page,
    "on its head": lambda page: cv2.rotate(page, cv2.ROTATE_180),
    "on its side": lambda page: cv2.rotate(page, cv2.ROTATE_90_CLOCKWISE),
    "larger than rapidocr works on": lambda page: cv2.resize(page, None, fx=6, fy=6),
    "one low strip, which is padded": lambda page: page[:25],
    "more lines than go together": lambda page: np.vstack([page, page]),
    "nothing to read": lambda page: np.full((100, 100, 3), 255, np.uint8),
    "a tiny picture": lambda page: page[:3, :3],
}


def assert_same_lines(lines, expected):
    assert [line["text"] for line in lines] == [line["text"] for line in expected]
    assert [line["box"] for line in lines] == [line["box"] for line in expected]
    assert [line["score"] for line in lines] == pytest.approx([line["score"] for line in expected], abs=1e-4)


def test_the_page_says_what_is_printed_on_it(ocr, page_file):
    lines = ocr({"data": page_file.read_bytes()})["result"]
    assert lines[0]["text"] == "Region-based segmentation"
    assert lines[0]["score"] > 0.99
    assert len(lines) == 7
    assert all(set(line) == {"text", "score", "box"} for line in lines)


def test_the_page_is_read_exactly_as_rapidocr_reads_it(ocr, page_file, rapidocr_reads):
    assert_same_lines(ocr({"data": page_file.read_bytes()})["result"], rapidocr_reads(page_file.read_bytes()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pages_are_read_exactly_as_rapidocr_reads_them(ocr, page, as_png, rapidocr_reads, variant):
    picture = np.ascontiguousarray(VARIANTS[variant](page))
    assert_same_lines(ocr({"data": as_png(picture)})["result"], rapidocr_reads(picture))


def test_a_transparent_page_is_read_as_rapidocr_reads_it(ocr, page, as_png, rapidocr_reads):
    ink = 255 - cv2.cvtColor(page, cv2.COLOR_BGR2GRAY)
    data = as_png(np.dstack([np.zeros_like(page), ink]))  # black letters, the ground transparent
    expected = rapidocr_reads(data)
    assert len(expected) > 3
    assert_same_lines(ocr({"data": data})["result"], expected)


def test_a_gray_page_is_read_too(ocr, page, as_png, rapidocr_reads):
    data = as_png(cv2.cvtColor(page, cv2.COLOR_BGR2GRAY))
    assert_same_lines(ocr({"data": data})["result"], rapidocr_reads(data))


def test_pages_from_many_threads_do_not_change_each_other(ocr, page, as_png, rapidocr_reads):
    pictures = [np.ascontiguousarray(page[: 60 + 20 * i]) for i in range(6)] + [page, cv2.rotate(page, cv2.ROTATE_180)]
    files = [as_png(picture) for picture in pictures]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda data: ocr({"data": data})["result"], files))
    for lines, picture in zip(results, pictures, strict=True):
        assert_same_lines(lines, rapidocr_reads(picture))


def test_pages_of_one_call_do_not_change_each_other(ocr, page_file, page, as_png):
    data = page_file.read_bytes()
    alone = ocr({"data": data})["result"]
    blank = as_png(np.full((60, 60, 3), 255, np.uint8))
    requests = [{"data": data}, {"data": blank}, {"data": data}]
    ocr(requests)
    assert [request["result"] for request in requests] == [alone, [], alone]


def test_the_request_keeps_its_data(ocr, page_file):
    data = page_file.read_bytes()
    request = ocr({"data": data, "name": "page 1"})
    assert request["data"] == data
    assert request["name"] == "page 1"


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", hami.RequestError, 'DecodeMat: "data" is empty (0 bytes); give the bytes of an image file'),
        (
            b"no image at all",
            hami.RequestError,
            "DecodeMat: \"data\" is not an image file: 15 bytes that start with b'no image at '; "
            "give the bytes of a JPEG, PNG, WebP, BMP, GIF or TIFF file",
        ),
        (7, hami.DataTypeError, "DecodeMat takes the bytes of an image file, as Path.read_bytes() gives, got int"),
    ],
)
def test_what_is_no_page_fails_alone_and_the_pipe_goes_on(ocr, page_file, data, kind, text):
    request = {"data": data, "result": "stale"}
    with pytest.raises(kind) as error:
        ocr(request)
    assert str(error.value).splitlines()[0] == text
    assert "result" not in request
    assert len(ocr({"data": page_file.read_bytes()})["result"]) == 7


def test_a_bad_page_does_not_fail_the_good_ones_of_its_call(ocr, page_file):
    requests = [{"data": page_file.read_bytes()}, {"data": b"bad"}, {"data": page_file.read_bytes()}]
    with pytest.raises(hami.BatchError) as error:
        ocr(requests)
    assert [index for index, _ in error.value.errors] == [1]
    assert len(requests[0]["result"]) == len(requests[2]["result"]) == 7
    assert "result" not in requests[1]
