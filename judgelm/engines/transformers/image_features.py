"""Image features in the transformers engine: computed once for an image, and put at its tokens in a packed row."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from judgelm.engines.transformers.sequences import RunningSequence
from judgelm.engines.transformers.vision import ProcessedImage, Vision
from judgelm.errors import EngineError

_MOST = 16


class ImageFeatures:
    """Embeds packed rows for one vision-language model.

    Args:
        model: one whose image features stand at the places of its image token, and nowhere else.
        vision: its processor.
    """

    def __init__(self, model: Any, vision: Vision) -> None:
        self._model = model
        self._token = vision.token_id
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def embedded(self, ids: Tensor, fresh: Sequence[RunningSequence], start: int) -> Tensor:
        """The embeddings of a packed row, with the features of the images that new prompts show.

        Args:
            ids: shape (1, tokens).
            fresh: the new prompts in the row, in order; one that goes on behind its images needs them no more.
            start: where the first of them begins.

        Returns:
            Shape (1, tokens, hidden size).

        Raises:
            EngineError: an image has not as many features as tokens.
        """
        row: Tensor = self._model.get_input_embeddings()(ids).clone()
        for reply in fresh:
            prompt, begun = reply.source.tokenized.ids, reply.kv.length
            if reply.source.seen and begun == 0:
                features = torch.cat([self._features(seen) for seen in reply.source.seen])
                places = [start + place for place, token in enumerate(prompt) if token == self._token]
                if len(places) != len(features):
                    raise EngineError(
                        f"request {reply.source.request.key}: {len(places)} image tokens in the prompt, and the model "
                        f"makes {len(features)} features; its processor does not belong to it"
                    )
                row[0, torch.tensor(places, device=row.device)] = features.to(row.dtype)
            start += len(prompt) - begun
        return row

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()

    def _features(self, seen: ProcessedImage) -> Tensor:
        """Shape (tokens of the image, hidden size)."""
        if seen.source not in self._kept:
            model = self._model
            pixels = {name: _placed(value, model) for name, value in seen.pixels.items()}
            found = model.get_image_features(**pixels, return_dict=True).pooler_output
            whole = torch.cat(list(found)) if isinstance(found, list | tuple) else found
            self._kept[seen.source] = whole.reshape(-1, whole.shape[-1])
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(seen.source)
        return self._kept[seen.source]


def _placed(value: Any, model: Any) -> Any:
    """A tensor where the model is, in its numeric format."""
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)
