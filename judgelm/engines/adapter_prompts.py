"""The prompts of an adapter beside others on one base: its own tokenizer's chat template, and its card's window."""

from typing import Any

from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import check_gguf_base, has_tokenizer, load_tokenizer
from judgelm.errors import ModelError
from judgelm.prompts.judge_card import find_card
from judgelm.prompts.truncation import Truncator


def adapter_truncator(truncator: Truncator, base: str, adapter: str) -> Truncator:
    """The truncator for an adapter's prompts.

    Args:
        truncator: of the base.
        base: its folder or hub id.
        adapter: folder or hub id of the adapter.

    Raises:
        ModelError: the adapter was trained on another base, or with a tokenizer of another vocabulary.
    """
    check_gguf_base(base, adapter)
    tokenizer: Any = truncator.tokenizer
    if has_tokenizer(adapter):
        if (own := load_tokenizer(base, adapter, EngineOptions(model=base))).get_vocab() != tokenizer.get_vocab():
            raise ModelError(
                f"{adapter}: its tokenizer has another vocabulary than the base's, so both cannot share one engine; "
                "serve it alone"
            )
        tokenizer = own
    card = find_card(adapter)
    window = truncator.window if card is None or card.window is None else min(card.window, truncator.window)
    return truncator.adapted(tokenizer, window)
