"""Reads a sample's images from files and `data:` URLs. Nothing is fetched from a network."""

import base64
import binascii
import mimetypes
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from judgelm.engines.base import ImageError

_REMOTE = ("http://", "https://")
_SHOWN = 60
_DAMAGE = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError),
    *(RuntimeError, MemoryError, struct.error, zlib.error),
)
"""Raised by PIL's readers for damaged files, each for another format."""

_URL_FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Of `data:` URLs, which may be a stranger's: PIL passes others, such as EPS, to programs of this machine."""


def read_image(source: str) -> Any:
    """The image as PIL's, in RGB; transparent parts are as PIL leaves them.

    Raises:
        ImageError: there is no image, or it is on a server.
    """
    from PIL import Image, UnidentifiedImageError  # only runs with images need it

    if source.startswith(_REMOTE):
        raise ImageError(f"{_named(source)}: this engine does not download images; download it first")
    try:
        formats = _URL_FORMATS if source.startswith("data:") else None
        with Image.open(BytesIO(image_bytes(source)), formats=formats) as image:
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise ImageError(f"{_named(source)}: not an image that can be read; save it as PNG or JPEG") from error
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise ImageError(f"{_named(source)}: the image cannot be read: {error}; check the file") from error


def image_url(source: str) -> str:
    """The image as a URL for a server: a file becomes a `data:` URL, other URLs stay.

    Raises:
        ImageError: the file cannot be read, or its name has no image extension.
    """
    if source.startswith((*_REMOTE, "data:")):
        return source
    kind = mimetypes.guess_type(source)[0] or ""
    if not kind.startswith("image/"):
        raise ImageError(f"{_named(source)}: its extension is not that of an image; use .png, .jpg or the like")
    return f"data:{kind};base64,{base64.b64encode(image_bytes(source)).decode()}"


def image_bytes(source: str) -> bytes:
    """The bytes of an image's file or `data:` URL.

    Raises:
        ImageError: they cannot be read.
    """
    try:
        if not source.startswith("data:"):
            return Path(source).read_bytes()
        head, comma, body = source.partition(",")
        if not comma:
            raise ImageError(f"{_named(source)}: a data: URL without a comma; write data:image/png;base64,...")
        return base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except OSError as error:
        raise ImageError(f"{_named(source)}: cannot read: {error.strerror or error}; check the path") from error
    except binascii.Error as error:
        raise ImageError(f"{_named(source)}: its base64 is damaged: {error}; encode it again") from error


def _named(source: str) -> str:
    return f"image {source if len(source) <= _SHOWN or not source.startswith('data:') else source[:_SHOWN] + '...'}"
