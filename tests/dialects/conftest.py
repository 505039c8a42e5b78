"""Fresh requests of real clients: captured ones whose texts are exchanged."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from judgelm.dialects.contract import ChatRequest
from tests.support import captures


@pytest.fixture(scope="session")
def refilled(shared_data) -> Callable[..., ChatRequest]:
    """Builds a folder's first plain request anew, with other texts in the places of the captured ones."""
    templates = {}

    def build(folder, *, question=None, answers, reference=None) -> ChatRequest:
        if folder not in templates:
            judging = [pair for pair in captures.requests(shared_data, folder) if not pair[0].get("aux")]
            templates[folder] = next((pair for pair in judging if pair[0].get("id") == "plain"), judging[0])
        item, request = templates[folder]
        item = captures.last_turn(item)
        texts = {item.get("source", item["question"]): question, item.get("reference"): reference}
        texts |= dict(zip(item["answers"], answers, strict=True))
        escaped = folder.startswith("ragas") and not folder.startswith("ragas_discrete")
        texts = {
            old: json.dumps(new, ensure_ascii=False)[1:-1] if escaped else new
            for old, new in texts.items()
            if old is not None and new is not None
        }
        pattern = re.compile("|".join(sorted(map(re.escape, texts), key=len, reverse=True)))
        messages = tuple(
            replace(message, text=pattern.sub(lambda old: texts[old[0]], message.text)) for message in request.messages
        )
        return replace(request, messages=messages)

    return build
