"""Options of a judge's thinking, and the arguments of its chat template for it."""

import re
from dataclasses import dataclass

from judgelm.parsing.thinking import CLOSE, OPEN
from judgelm.records import ThinkingMode

NO_THINKING = f"\n{CLOSE}\n\n"
"""Ends a block that a chat template has opened, where the judge is not to think."""

_OPENED = re.compile(rf"{OPEN}\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The thinking of an engine's judge.

    Attributes:
        mode: the argument for its chat template.
        max_tokens: room for the thinking, beside the room that each mode gives the reply.
        resumes: whether the engine knows the prompt as the model reads it and lets a reply go on behind thinking that
            stands there. Then a judge that is asked to think writes its thinking first, up to its end, and the reply
            in a request of its own, with the reply's own stop strings, grammar, candidates and forced beginning.
    """

    mode: ThinkingMode = "absent"
    max_tokens: int = 4096
    resumes: bool = False

    def within(self, window: int | None) -> "Thinking":
        """At most half of the judge's window is for thinking."""
        if window is None or self.max_tokens <= window // 2:
            return self
        return Thinking(mode=self.mode, max_tokens=max(1, window // 2), resumes=self.resumes)

    def described(self) -> dict[str, dict[str, str | int]]:
        """The entry in manifests; empty where `mode` is `absent`."""
        return {} if self.mode == "absent" else {"thinking": {"asked": self.mode, "max_tokens": self.max_tokens}}


NOT_ASKED = Thinking()


def opening_of(prompt: str) -> str:
    """The opened block, blanks included, that a prompt ends in; empty where it ends in none."""
    match = _OPENED.search(prompt, max(0, len(prompt) - 64))
    return "" if match is None else match[0]


def template_arguments(mode: ThinkingMode) -> dict[str, bool]:
    """Arguments for chat templates: `enable_thinking` (Qwen, GLM, SmolLM), `thinking` (DeepSeek, Granite)."""
    return {} if mode == "absent" else dict.fromkeys(("enable_thinking", "thinking"), mode == "on")
