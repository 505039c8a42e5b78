"""The pictures of the documentation: small, and each of the gallery's own is shown there."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted((DOCS / "images").glob("*.png"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small(picture):
    assert picture.stat().st_size <= 150_000


def test_the_gallery_shows_each_picture_of_the_page():
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert [
        each.name for each in PICTURES if each.name.startswith("web-") and f"images/{each.name}" not in gallery
    ] == []
