"""Conversion of max, min and opt to shapes of a profile, and errors for values that do not match the model."""

from __future__ import annotations

import hami
import pytest

from hami_trt._shapes import Input, ShapeRange, profile_shapes

IMAGES = Input("x", (-1, 3, 224, 224))
ANY_SIZE = Input("x", (-1, 3, -1, -1))
FIXED = Input("x", (1, 3, 224, 224))
WORDS = Input("words", (-1, 16))
TABLE = Input("table", (10, 4))


def shapes_of(inputs, max=None, min=None, opt=None):
    return profile_shapes(inputs, max, min, opt, "Owner")


@pytest.mark.parametrize(
    ("inputs", "given", "expected"),
    [
        ([IMAGES], {}, {"x": ((1, 3, 224, 224),) * 3}),
        ([IMAGES], {"max": "4"}, {"x": ((1, 3, 224, 224), (4, 3, 224, 224), (4, 3, 224, 224))}),
        (
            [IMAGES],
            {"max": "8", "min": "2", "opt": "4"},
            {"x": ((2, 3, 224, 224), (4, 3, 224, 224), (8, 3, 224, 224))},
        ),
        ([IMAGES], {"max": "4x3x224x224"}, {"x": ((1, 3, 224, 224), (4, 3, 224, 224), (4, 3, 224, 224))}),
        (
            [ANY_SIZE],
            {"max": "4x3x640x480", "min": "2", "opt": "3"},
            {"x": ((2, 3, 640, 480), (3, 3, 640, 480), (4, 3, 640, 480))},
        ),
        (
            [ANY_SIZE],
            {"max": "4x3x640x480", "min": "1x3x32x32"},
            {"x": ((1, 3, 32, 32), (4, 3, 640, 480), (4, 3, 640, 480))},
        ),
        (
            [IMAGES, WORDS, TABLE],
            {"max": "4"},
            {
                "x": ((1, 3, 224, 224), (4, 3, 224, 224), (4, 3, 224, 224)),
                "words": ((1, 16), (4, 16), (4, 16)),
                "table": ((10, 4),) * 3,
            },
        ),
        (
            [IMAGES, WORDS],
            {"max": "words:8x16,x:4x3x224x224"},
            {"x": ((1, 3, 224, 224), (4, 3, 224, 224), (4, 3, 224, 224)), "words": ((1, 16), (8, 16), (8, 16))},
        ),
        ([FIXED], {}, {"x": ((1, 3, 224, 224),) * 3}),
        ([Input("x", (4, 3))], {"max": "4"}, {"x": ((4, 3),) * 3}),
        ([Input("x", ())], {}, {"x": ((),) * 3}),
    ],
)
def test_numbers_and_shapes_are_converted(inputs, given, expected):
    assert shapes_of(inputs, **given) == {name: ShapeRange(*shapes) for name, shapes in expected.items()}


@pytest.mark.parametrize(
    ("inputs", "given", "message"),
    [
        (
            [FIXED],
            {"max": "4"},
            'Owner: "max" is 4 rows, but axis 0 of the model is fixed: "x" 1x3x224x224; '
            "export the model with a dynamic axis 0",
        ),
        (
            [ANY_SIZE],
            {"max": "4"},
            'Owner: "max" is 4 rows, but input "x" ?x3x?x? has other dynamic axes; '
            'give whole shapes, for example max = "4x3x224x224"',
        ),
        ([IMAGES], {"max": "0"}, 'Owner: "max" must be 1 or more, got 0'),
        (
            [IMAGES],
            {"max": "4x1x224x224"},
            'Owner: "max" must match input "x" ?x3x224x224 (? is any size), got "4x1x224x224"',
        ),
        (
            [IMAGES],
            {"max": "4x224x224"},
            'Owner: "max" must match input "x" ?x3x224x224 (? is any size), got "4x224x224"',
        ),
        ([IMAGES], {"max": "four"}, 'Owner: "max" must match input "x" ?x3x224x224 (? is any size), got "four"'),
        (
            [IMAGES],
            {"max": "0x3x224x224"},
            'Owner: "max" must match input "x" ?x3x224x224 (? is any size), got "0x3x224x224"',
        ),
        (
            [IMAGES, WORDS],
            {"max": "4x3x224x224"},
            'Owner: "max" must be a number of rows, or one shape for each input, for example '
            '"x:4x3x224x224,words:4x16"; the inputs are "x" ?x3x224x224, "words" ?x16, got "4x3x224x224"',
        ),
        (
            [IMAGES],
            {"max": "y:4x3x224x224"},
            'Owner: "max" must be a number of rows, or one shape for each input, for example "4x3x224x224"; '
            'the inputs are "x" ?x3x224x224, got "y:4x3x224x224"',
        ),
        (
            [IMAGES],
            {"max": "4", "min": "8"},
            'Owner: min is 8x3x224x224 and opt is 4x3x224x224 for input "x" ?x3x224x224; '
            "expected min <= opt <= max on every axis",
        ),
        (
            [IMAGES],
            {"max": "4", "opt": "8"},
            'Owner: opt is 8x3x224x224 and max is 4x3x224x224 for input "x" ?x3x224x224; '
            "expected min <= opt <= max on every axis",
        ),
    ],
)
def test_values_that_do_not_match_the_model_are_rejected(inputs, given, message):
    with pytest.raises(hami.ConfigError) as caught:
        shapes_of(inputs, **given)
    assert str(caught.value) == message
