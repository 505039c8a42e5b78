"""Load and process images from files and `data:` URLs. Images are never downloaded."""

import base64
import binascii
import importlib.util
import mimetypes
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from judgelm.engines.base import EngineOptions, ImageError
from judgelm.errors import ModelError, first_line

_REMOTE = ("http://", "https://")
_SHOWN = 60
_DAMAGE = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError),
    *(RuntimeError, MemoryError, struct.error, zlib.error),
)
"""Errors that PIL raises for damaged files, depending on the format."""
_URL_FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats allowed in `data:` URLs, which may be untrusted: PIL runs external programs for formats such as EPS."""
_MAX_CACHED = 64
_TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})


def read_image(source: str) -> Any:
    """Load an image and convert it to RGB."""
    from PIL import Image, UnidentifiedImageError  # only needed for images

    if source.startswith(_REMOTE):
        raise ImageError(f"{_named(source)}: this engine does not download images; download it first")
    try:
        formats = _URL_FORMATS if source.startswith("data:") else None
        with Image.open(BytesIO(image_bytes(source)), formats=formats) as image:
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise ImageError(f"{_named(source)}: unknown image format; save it as PNG or JPEG") from error
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise ImageError(f"{_named(source)}: cannot decode the image: {error}; check the file") from error


def image_url(source: str) -> str:
    """Return a URL for the image. Files are encoded as `data:` URLs."""
    if source.startswith((*_REMOTE, "data:")):
        return source
    kind = mimetypes.guess_type(source)[0] or ""
    if not kind.startswith("image/"):
        raise ImageError(f"{_named(source)}: expected an image extension, such as .png or .jpg; rename the file")
    return f"data:{kind};base64,{base64.b64encode(image_bytes(source)).decode()}"


def image_bytes(source: str) -> bytes:
    """Read the bytes of an image file or `data:` URL."""
    try:
        if not source.startswith("data:"):
            return Path(source).read_bytes()
        head, comma, body = source.partition(",")
        if not comma:
            raise ImageError(f"{_named(source)}: the data: URL has no comma; expected data:image/png;base64,...")
        return base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except OSError as error:
        raise ImageError(f"{_named(source)}: cannot open: {error.strerror or error}; check the path") from error
    except binascii.Error as error:
        raise ImageError(f"{_named(source)}: invalid base64: {error}; encode the image again") from error


def _named(source: str) -> str:
    return f"image {source if len(source) <= _SHOWN or not source.startswith('data:') else source[:_SHOWN] + '...'}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessedImage:
    """A PIL image, its text in the prompt, and the processor's outputs (batch size 1)."""

    picture: Any
    text: str
    pixels: dict[str, Any]


class Vision:
    """Processes and caches images for one model."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.process = lru_cache(_MAX_CACHED)(self._process)

    @classmethod
    def load(cls, base: str, options: EngineOptions) -> "Vision":
        """Load the model's processor."""
        from transformers import AutoProcessor  # takes seconds

        try:
            processor = AutoProcessor.from_pretrained(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
                base, revision=options.revision, trust_remote_code=options.trust_remote_code
            )
        except (OSError, ValueError, KeyError, ImportError, AttributeError) as error:
            # without torchvision, transformers raises AttributeError for processors that also support videos
            way_out = "copy processor_config.json and preprocessor_config.json from the original model"
            if importlib.util.find_spec("torchvision") is None:
                way_out += "; some processors need torchvision"
            raise ModelError(f"{base}: cannot load the image processor: {first_line(error)}; {way_out}") from error
        if getattr(processor, "image_token", None) is None or not hasattr(processor, "image_processor"):
            raise ModelError(f"{base}: the processor has no image token; serve the model and use --engine openai")
        return cls(processor)

    @property
    def placeholder(self) -> str:
        """The image placeholder used in the chat template."""
        return str(self._processor.image_token)

    @property
    def token_id(self) -> int:
        """The id of the token that the model replaces with image features."""
        return int(self._processor.image_token_id)

    def text_of(self, image: str) -> str:
        """Return the text that represents the image in the prompt."""
        return self.process(image).text

    def _process(self, image: str) -> ProcessedImage:
        picture = read_image(image)
        try:
            marks = [self.placeholder]
            alone = self._processor(images=[picture], text=marks, return_tensors="pt", add_special_tokens=False)
        except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:  # such as 1 x 1000 pixels
            size = f"{picture.width} x {picture.height} pixels"
            raise ImageError(f"the image processor failed for an image of {size}: {first_line(error)}") from error
        ids = alone["input_ids"][0].tolist()
        tokenizer = self._processor.tokenizer
        text = str(tokenizer.decode(ids, skip_special_tokens=False))
        if list(tokenizer(text, add_special_tokens=False)["input_ids"]) != ids:
            raise ImageError("the image tokens change when they are decoded and tokenised again; use --engine vllm")
        pixels = {name: value for name, value in alone.items() if name not in _TEXT_INPUTS}
        return ProcessedImage(picture=picture, text=text, pixels=pixels)
