"""A sample's images: read from files and `data:` URLs, and processed for a vision-language model.

Nothing is fetched from a network. The processor makes of an image its tokens in the prompt, and its pixels.

Source: transformers' `ProcessorMixin`, whose image tokens are written into the text before it is tokenised.
"""

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
"""Raised by PIL's readers for damaged files, each for another format."""

_URL_FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Of `data:` URLs, which may be a stranger's: PIL passes others, such as EPS, to programs of this machine."""
_MAX_CACHED = 64
_TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessedImage:
    """One image as the model takes it.

    Attributes:
        picture: PIL's image.
        text: its text in the prompt.
        pixels: the processor's arrays by the names of the model's arguments, each with a leading batch of one image.
    """

    picture: Any
    text: str
    pixels: dict[str, Any]


class Vision:
    """Reads images for one model; recent ones are cached, since both orders and the reason show the same.

    Args:
        processor: of the model, with an image token.

    Attributes:
        process: makes a `ProcessedImage` of an image; raises ImageError where it cannot be read.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.process = lru_cache(_MAX_CACHED)(self._process)

    @classmethod
    def load(cls, base: str, options: EngineOptions) -> "Vision":
        """The model's own processor.

        Raises:
            ModelError: there is none, or it has no image token.
        """
        from transformers import AutoProcessor  # takes seconds

        try:
            processor = AutoProcessor.from_pretrained(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
                base, revision=options.revision, trust_remote_code=options.trust_remote_code
            )
        except (OSError, ValueError, KeyError, ImportError, AttributeError) as error:
            # without torchvision transformers raises an AttributeError for processors that read videos too
            way_out = "copy processor_config.json and preprocessor_config.json of the original into it"
            if importlib.util.find_spec("torchvision") is None:
                way_out += ", and install torchvision, which some processors need"
            raise ModelError(
                f"{base}: a vision-language model whose processor cannot be loaded: {first_line(error)}; {way_out}"
            ) from error
        if getattr(processor, "image_token", None) is None or not hasattr(processor, "image_processor"):
            raise ModelError(f"{base}: its processor has no image token; use --engine openai with a server that does")
        return cls(processor)

    @property
    def placeholder(self) -> str:
        """The text that a chat template writes for one image."""
        return str(self._processor.image_token)

    @property
    def token_id(self) -> int:
        """The token at whose positions the model puts image features."""
        return int(self._processor.image_token_id)

    def text_of(self, image: str) -> str:
        """The image's text in a prompt.

        Raises:
            ImageError: it cannot be read.
        """
        return self.process(image).text

    def _process(self, image: str) -> ProcessedImage:
        """Text and pixels, as the processor makes them of a prompt that consists of the image alone."""
        picture = read_image(image)
        try:
            alone = self._processor(
                images=[picture], text=[self.placeholder], return_tensors="pt", add_special_tokens=False
            )
        except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:  # such as a pixel by 1000
            size = f"{picture.width} x {picture.height}"
            raise ImageError(
                f"an image of {size} pixels: the model's processor refuses it: {first_line(error)}"
            ) from error
        ids = alone["input_ids"][0].tolist()
        tokenizer = self._processor.tokenizer
        text = str(tokenizer.decode(ids, skip_special_tokens=False))
        if list(tokenizer(text, add_special_tokens=False)["input_ids"]) != ids:
            raise ImageError("the processor's text for an image is not tokenised to the same tokens; use --engine vllm")
        pixels = {name: value for name, value in alone.items() if name not in _TEXT_INPUTS}
        return ProcessedImage(picture=picture, text=text, pixels=pixels)
