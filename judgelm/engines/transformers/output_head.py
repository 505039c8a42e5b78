"""The output head of a model in 16 bits, with the logits of candidates in float32.

A logit near 20 stands in bfloat16 at the next multiple of 1/8, which moves the probability of a score line more than
all other rounding of the forward pass together. The few logits that candidates need cost nothing in float32.
"""

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

from judgelm.engines.transformers.packed_layers import PackedLinear


class OutputHead(nn.Module):
    """Logits in float32, computed in the weights' format except those of some tokens.

    Args:
        linear: the model's head, packed or not; its weight has shape (vocabulary, hidden).
    """

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self._known: set[int] = set()
        self._tokens: Tensor | None = None
        self._rows: Tensor | None = None
        self._bias: Tensor | None = None

    @property
    def weight(self) -> Any:
        """The head's weight, as transformers looks for it."""
        return self.linear.weight

    def compute_exactly(self, tokens: Collection[int]) -> None:
        """Compute the logits of these token ids in float32 from now on, beside those named before."""
        if self._known.issuperset(tokens):
            return
        self._known |= set(tokens)
        weight = self.linear.weight
        assert isinstance(weight, Tensor)
        plain = weight.to_dense() if weight.is_mkldnn else weight.detach()
        self._tokens = torch.tensor(sorted(self._known), device=plain.device)
        self._rows = plain[self._tokens].float()
        bias = self.linear.bias
        self._bias = bias.detach()[self._tokens].float() if isinstance(bias, Tensor) else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape (..., hidden) to (..., vocabulary), float32."""
        logits: Tensor = self.linear(hidden).float()
        if self._tokens is not None and self._rows is not None:
            logits[..., self._tokens] = F.linear(hidden.float(), self._rows, self._bias)
        return logits


def install_head(model: Any) -> OutputHead | None:
    """Put an `OutputHead` in the place of a 16-bit model's head.

    None where the head is of another kind, and for a model in training, which is wrapped and stays as it is.
    """
    find: Any = getattr(model, "get_output_embeddings", None)
    head: Any = None if find is None else find()
    if isinstance(head, OutputHead):
        return head
    if type(head) not in (nn.Linear, PackedLinear) or head.weight.dtype not in (torch.bfloat16, torch.float16):
        return None
    exact = OutputHead(head)
    model.set_output_embeddings(exact)
    return exact
