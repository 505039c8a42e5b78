"""The processor of a vision-language model: an image's tokens in the prompt, and its pixels.

Source: transformers' `ProcessorMixin`, whose image tokens are written into the text before it is tokenised.
"""

import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from judgelm.engines.base import EngineOptions, ImageError
from judgelm.engines.images import read_image
from judgelm.errors import ModelError, first_line

_MAX_CACHED = 64
_TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})


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
