"""How many tokens a pair takes as a training row: the template's prompt and the longest reply, in one order."""

from typing import Any

from judgelm.data.labelled_pair import LabelledPair, score_line
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator


class LengthFilter:
    """Tells which pairs have a judgment that takes more tokens than a row may have, prompt and reply together.

    Args:
        tokens: most tokens of a row, the end-of-sequence token among them.
        tokenizer: a fast tokenizer.
        template: id of the trainer's template.
    """

    def __init__(self, tokens: int, tokenizer: Any, template: str) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._truncator = Truncator(tokenizer, tokens)
        self._template = get_template(template)

    def __call__(self, pairs: list[LabelledPair]) -> list[bool]:
        """One answer for each pair; tokenised together, which a fast tokenizer does on all cores."""
        texts, owners = [], []
        for index, pair in enumerate(pairs):
            for label, reference in ((pair.plain, None), (pair.referenced, pair.sample.reference)):
                if label is not None:
                    prompt = self._template.render(pair.sample, (0, 1), reference)
                    reply = f"{score_line(label.scores or ())}\n{label.reason or ''}"
                    texts.append(self._truncator.text(prompt.spans, chat=prompt.chat) + reply)
                    owners.append(index)
        long = [False] * len(pairs)
        encoded = self._tokenizer(texts, add_special_tokens=not self._template.chat, verbose=False)["input_ids"]
        for index, ids in zip(owners, encoded, strict=True):
            long[index] |= len(ids) + 1 > self._tokens
        return long
