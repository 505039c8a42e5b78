"""Image features in the transformers engine: computed once per image, and put at its tokens in a packed row."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from judgelm.engines.images import ProcessedImage, Vision
from judgelm.engines.transformers.packed_row import NewPrompt
from judgelm.errors import EngineError

_MAX_CACHED = 16


class ImageFeatures:
    """Embeds packed rows for one vision-language model.

    Args:
        model: one that puts image features at the positions of its image token, and nowhere else.
        vision: its processor.
    """

    def __init__(self, model: Any, vision: Vision) -> None:
        self._model = model
        self._token = vision.token_id
        self._features = lru_cache(_MAX_CACHED)(self._compute)

    def embed(self, ids: Tensor, fresh: Sequence[NewPrompt], start: int) -> Tensor:
        """The embeddings of a packed row, with the features of the images that new prompts show.

        Args:
            ids: shape (1, tokens).
            fresh: the new prompts in the row, in order; one that starts behind its images does not need them.
            start: position of the first of them.

        Returns:
            Shape (1, tokens, hidden size).

        Raises:
            EngineError: an image has not as many features as tokens.
        """
        row: Tensor = self._model.get_input_embeddings()(ids).clone()
        for new in fresh:
            parent, begun = new.queued, new.kv.length
            prompt = parent.tokenized.ids
            if parent.images and begun == 0:
                features = torch.cat([self._features(image) for image in parent.images])
                positions = [start + position for position, token in enumerate(prompt) if token == self._token]
                if len(positions) != len(features):
                    raise EngineError(
                        f"request {parent.request.key}: {len(positions)} image tokens in the prompt, but the model "
                        f"makes {len(features)} features; its processor does not belong to it"
                    )
                row[0, torch.tensor(positions, device=row.device)] = features.to(row.dtype)
            start += len(prompt) - begun
        return row

    def clear(self) -> None:
        """Free the memory."""
        self._features.cache_clear()

    def _compute(self, image: ProcessedImage) -> Tensor:
        """Shape (tokens of the image, hidden size)."""
        pixels = {name: _to_model(value, self._model) for name, value in image.pixels.items()}
        output = self._model.get_image_features(**pixels, return_dict=True).pooler_output
        features = torch.cat(list(output)) if isinstance(output, list | tuple) else output
        return features.reshape(-1, features.shape[-1])


def _to_model(value: Any, model: Any) -> Any:
    """A tensor on the model's device, in its numeric format."""
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)
