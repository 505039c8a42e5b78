"""Fresh requests of real clients: captured ones whose texts are exchanged."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from judgelm.dialects.contract import ChatRequest
from tests.support import captures


@pytest.fixture(scope="session")
def refilled(shared_data) -> Callable[..., ChatRequest]:
    """Builds a folder's first plain request anew, with other texts in the place of the captured ones.

    `write` is what the client does to a text before it stands in the prompt.
    """
    templates = {}

    def build(folder, *, question=None, answers, reference=None, write=str) -> ChatRequest:
        if folder not in templates:
            templates[folder] = next(
                one
                for one in captures.requests(shared_data, folder)
                if one[0].get("id") == "plain" and one[0]["answers"]
            )
        item, asked = templates[folder]
        texts = {item["question"]: question, item.get("reference"): reference}
        texts |= dict(zip(item["answers"], answers, strict=True))
        texts = {old: write(new) for old, new in texts.items() if old is not None and new is not None}
        pattern = re.compile("|".join(sorted(map(re.escape, texts), key=len, reverse=True)))
        assert sum(len(pattern.findall(one.text)) for one in asked.messages) == len(texts)
        messages = tuple(replace(one, text=pattern.sub(lambda old: texts[old[0]], one.text)) for one in asked.messages)
        return replace(asked, messages=messages)

    return build
