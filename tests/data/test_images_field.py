"""Where the images of a row lie."""

import pytest

from judgelm.data.readers.rows import Row
from judgelm.data.sources.layouts import plain_sample
from judgelm.errors import InputError


def row_of(**data):
    return Row("data/pairs.jsonl", 3, {"question": "q", "answer": "a", **data})


@pytest.mark.parametrize(
    ("data", "images"),
    [
        ({"image": "cat.png"}, ("data/cat.png",)),  # from the file's own folder
        ({"images": ["a.png", "/b.png"]}, ("data/a.png", "/b.png")),
        ({"image": "data:image/png;base64,AA=="}, ("data:image/png;base64,AA==",)),
        ({"image": "https://example.org/a.png"}, ("https://example.org/a.png",)),
        ({"images": [], "image": ""}, ()),
    ],
)
def test_a_row_says_where_its_images_lie(data, images):
    sample = plain_sample(row_of(**data))
    assert sample.images == images
    assert sample.metadata == {}


@pytest.mark.parametrize("data", [{"image": 3}, {"images": ["a.png", None]}, {"image": {"bytes": "x"}}])
def test_what_is_no_place_is_an_error(data):
    with pytest.raises(InputError, match=r'data/pairs.jsonl:3: field "images?": expected the image path'):
        row_of(**data).images()
