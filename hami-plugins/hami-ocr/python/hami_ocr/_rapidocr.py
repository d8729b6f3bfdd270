"""Adapter to the rapidocr package. Only this module uses rapidocr's internals, which are not a stable interface.

The result must be the text that RapidOCR()(image) returns. Therefore each step calls rapidocr's own function. This
module replaces only the order of the steps and the sessions (hami_onnx: one session per model and process).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import hami
import numpy as np
from hami_onnx.session import open_session
from numpy.typing import NDArray

try:
    import rapidocr.main as rapid
    from omegaconf import OmegaConf
    from rapidocr.ch_ppocr_cls import TextClassifier
    from rapidocr.ch_ppocr_det import TextDetector
    from rapidocr.ch_ppocr_rec import TextRecognizer
    from rapidocr.inference_engine.base import FileInfo, InferSession
    from rapidocr.utils.load_image import LoadImage
    from rapidocr.utils.parse_parameters import ParseParams
    from rapidocr.utils.process_img import (
        ResizeImgError,
        apply_vertical_padding,
        get_rotate_crop_image,
        map_boxes_to_original,
        resize_image_within_bounds,
    )
except ImportError as error:
    raise hami.PluginError(
        f"hami-ocr does not support the installed rapidocr {version('rapidocr')}: {error}; "
        "run: pip install --upgrade hami-ocr"
    ) from error

_load_image: Any = LoadImage  # rapidocr does not annotate this class


class DetectedLines(NamedTuple):
    """The lines that a Detector found on a page, in reading order."""

    image: NDArray[np.uint8]  # the page as prepared for recognition
    boxes: NDArray[np.floating[Any]]  # n x 4 x 2, the corners of each line in `image`, in pixels
    page_boxes: NDArray[np.floating[Any]]  # n x 4 x 2, the same corners in the page


class Line(NamedTuple):
    """One line of text, cropped and levelled."""

    image: NDArray[np.uint8]
    ratio: float  # width / height to which the image is padded for recognition


@cache
def _settings() -> Any:
    return ParseParams.load(rapid.DEFAULT_CFG_PATH)


def default_text_score() -> float:
    """Return the score below which rapidocr drops a line."""
    return float(_settings().Global.text_score)


def _model_file(section: Any) -> Path:
    keys = ("engine_type", "ocr_version", "task_type", "lang_type", "model_type")
    info = InferSession.get_model_url(FileInfo(**{key: section[key] for key in keys}))
    return Path(rapid.root_dir) / "models" / Path(info["model_dir"]).name


@contextlib.contextmanager
def _without_info_log() -> Iterator[None]:
    """Suppress rapidocr's messages on stderr about the engine that it uses."""
    logger = logging.getLogger("RapidOCR")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _create_stage(
    stage_type: Any, name: str, backend: str, threads: int, provider: str, **settings: float | None
) -> Any:
    """Create one of rapidocr's stages with a session of hami_onnx. `settings` that are not None replace its own."""
    section: Any = OmegaConf.create(OmegaConf.to_container(_settings()[name]), flags={"allow_objects": True})
    for key, value in settings.items():
        if value is not None:
            section[key] = value
    path = _model_file(section)
    if not path.is_file():
        raise hami.ConfigError(
            f"{backend}: the installed rapidocr {version('rapidocr')} lacks its model {path.name} "
            f"(looked for {path}); nothing is downloaded at run time: pip install --force-reinstall rapidocr"
        )
    section.session = open_session(path, threads=threads, provider=provider, backend=backend)
    with _without_info_log():
        return stage_type(section)


class Detector:
    """Finds the lines of text on a page."""

    def __init__(
        self, backend: str, threads: int, provider: str, box_thresh: float | None, unclip_ratio: float | None
    ) -> None:
        self._backend = backend
        self._stage = _create_stage(
            TextDetector, "Det", backend, threads, provider, box_thresh=box_thresh, unclip_ratio=unclip_ratio
        )
        self._preprocess = self._stage.get_preprocess()
        # rapidocr's normalize() maps each value separately. A table of its results for all 256 values is much faster.
        every_byte = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
        self._table = self._preprocess.normalize(every_byte).astype(np.float32)

    def __call__(self, page: NDArray[np.uint8]) -> DetectedLines:
        """Find the lines of a BGR page H x W x 3."""
        limits = _settings().Global
        try:
            image, ratio_h, ratio_w = resize_image_within_bounds(page, limits.min_side_len, limits.max_side_len)
        except ResizeImgError as error:
            height, width = page.shape[:2]
            raise hami.RequestError(
                f"{self._backend}: the image is {width} x {height}; rapidocr scales the longer side to "
                f"{limits.max_side_len}, and the shorter side would have no pixels; split the image into shorter parts"
            ) from error
        record = {"preprocess": {"ratio_h": ratio_h, "ratio_w": ratio_w}}
        image, record = apply_vertical_padding(image, record, limits.width_height_ratio, limits.min_height)
        boxes = self._boxes(image)
        page_boxes = map_boxes_to_original(boxes.copy(), record, *page.shape[:2])
        return DetectedLines(image, boxes, page_boxes)

    def _boxes(self, image: NDArray[np.uint8]) -> Any:
        resized = self._preprocess.resize(image)
        if resized is None:
            return np.zeros((0, 4, 2), np.float32)
        scores = self._stage.session(self.to_tensor(resized))
        boxes, _ = self._stage.postprocess_op(scores, image.shape[:2])
        return self._stage.sorted_boxes(boxes) if len(boxes) else np.zeros((0, 4, 2), np.float32)

    def to_tensor(self, resized: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the tensor that rapidocr computes with normalize, permute and astype."""
        tensor = np.empty((1, 3, *resized.shape[:2]), np.float32)
        for channel, plane in enumerate(cv2.split(cv2.LUT(resized, self._table))):
            tensor[0, channel] = plane
        return tensor


def to_bgr(image: NDArray[np.uint8]) -> Any:
    """Convert a gray or BGRA image to BGR, in the way that rapidocr converts such files."""
    if image.ndim == 3 and image.shape[2] == 3:
        return image
    rgba = cv2.cvtColor(image, cv2.COLOR_BGRA2RGBA) if image.ndim == 3 and image.shape[2] == 4 else image
    return _load_image().convert_img(rgba, bytes)  # rapidocr reads files with Pillow, in the order RGBA


def crop_lines(image: NDArray[np.uint8], boxes: NDArray[np.floating[Any]]) -> list[Line]:
    """Crop the boxes and compute the ratio to which each line is padded, because the recognised text depends on it.

    rapidocr sorts the lines of a page by width and recognises a few at a time, padded to the widest of them. With the
    same padding, a line has the same text if it is recognised alone or together with lines of other pages.
    """
    crops = [get_rotate_crop_image(image, box.copy()) for box in boxes]
    if not crops:
        return []
    section = _settings().Rec
    _, height, width = section.rec_img_shape
    own_ratios = [crop.shape[1] / float(crop.shape[0]) for crop in crops]
    order = np.argsort(np.array(own_ratios))
    ratios = [0.0] * len(crops)
    for start in range(0, len(crops), section.rec_batch_num):
        group = order[start : start + section.rec_batch_num]
        widest = max(width / height, *(own_ratios[index] for index in group))
        for index in group:
            ratios[index] = widest
    return [Line(crop, ratio) for crop, ratio in zip(crops, ratios, strict=True)]


class Orienter:
    """Rotates lines that are upside down."""

    def __init__(self, backend: str, threads: int, provider: str) -> None:
        self._stage = _create_stage(TextClassifier, "Cls", backend, threads, provider)

    def __call__(self, crops: Sequence[NDArray[np.uint8]]) -> list[Any]:
        batch = np.stack([self._stage.resize_norm_img(crop) for crop in crops])
        classes = self._stage.postprocess_op(self._stage.session(batch))
        return [
            cv2.rotate(crop, cv2.ROTATE_180) if "180" in label and score > self._stage.cls_thresh else crop
            for crop, (label, score) in zip(crops, classes, strict=True)
        ]


class Recognizer:
    """Recognises the text of a line and its score."""

    def __init__(self, backend: str, threads: int, provider: str) -> None:
        self._stage = _create_stage(TextRecognizer, "Rec", backend, threads, provider)

    def __call__(self, line: Line) -> tuple[str, float]:
        tensor = self._stage.resize_norm_img(line.image, line.ratio)
        (answer,), _ = self._stage.postprocess_op(self._stage.session(tensor[np.newaxis]))
        text, score = answer
        return text, float(score)
