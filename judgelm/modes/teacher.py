"""A teacher's judgment of a pair for training: the score line and the reason behind it, in one reply.

A judge that scores and explains in one reply is what it is trained to become; `pairwise` asks a trained one for the
score line first and explains only where that was asked for.

Source: JudgeLM, section 3.1 and Figures 3 and 4 (the prompts to GPT-4, without and with a reference).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from judgelm.errors import ConfigError
from judgelm.modes.completions import failure_of, thinking_of
from judgelm.modes.flow import Flow
from judgelm.modes.pairwise import winner_of
from judgelm.modes.sampling import sampling_for
from judgelm.parsing.scores import parse_pair
from judgelm.prompts.catalog import get_template
from judgelm.records import Completion, Judgment, PairVerdict, Request, Sample, Shown, Unparsed

_ORDER = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """Ask a teacher about a pair once, as it is given, with its reference if it has one.

    Every reply is a judgment of its own, so that one that is paid for is never asked for again since another failed;
    orders and references are samples of their own, see `judgelm.runs.teacher`.

    Attributes:
        template: id of the pair template.
        scale: lowest and highest score that the teacher may give.
        reason_tokens: most tokens of a reply, score line and reason together.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.

    Raises:
        ConfigError: no such template, or no room for a reply.
    """

    name: ClassVar[str] = "teaching"
    answers: ClassVar[tuple[int, int]] = (2, 2)
    reference: ClassVar[Literal["auto"]] = "auto"

    template: str = "judgelm-paper"
    scale: tuple[float, float] = (1, 10)
    reason_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        get_template(self.template)
        if self.reason_tokens < 1:
            raise ConfigError(f"reason_tokens is {self.reason_tokens}; it must be above 0")

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes for a pair."""
        return get_template(self.template).sha

    def __call__(self, sample: Sample) -> Flow:
        """Ask, and read the one reply."""
        request = self.request(sample)
        [completion] = yield [request]
        shown = read_review(completion, scale=self.scale, max_tokens=self.reason_tokens)
        scores = None if shown.scores is None else (shown.scores[0], shown.scores[1])
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if scores is None else PairVerdict(winner=winner_of(scores)),
            shown=(shown,),
            scores=scores,
            failure=shown.failure,
            sanitized=request.prompt.sanitized + completion.sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )

    def request(self, sample: Sample) -> Request:
        """What the teacher is asked."""
        sampling = sampling_for(sample.id, temperature=self.temperature, seed=self.seed, max_tokens=self.reason_tokens)
        prompt = get_template(self.template).render(sample, _ORDER, sample.reference)
        return Request(key="0", prompt=prompt, sampling=sampling)


def read_review(completion: Completion, *, scale: tuple[float, float], max_tokens: int) -> Shown:
    """A reply of scores and reason; `text` is the whole of it as it came.

    A reply that ends within its score line is a failure even where its beginning looks like scores. One whose reason
    lacks its end, or which has no reason, has scores and says so in `reason_failure`; half a reason is not kept.
    """
    text = completion.texts[0] if completion.texts else ""
    shown = Shown(order=_ORDER, text=text, thinking=thinking_of(completion), truncations=completion.truncations)
    if (failure := failure_of(completion)) is not None:
        return replace(shown, failure=failure)
    ended = completion.finish_reasons[0]
    cut_off = Unparsed("truncated", text, f"no end within {max_tokens} tokens or the window")
    line, reason = split_score_line(text, scale)
    if ended == "length" and not line.endswith(("\n", "\r")):
        return replace(shown, failure=cut_off)
    parsed = parse_pair(text, scale)
    if isinstance(parsed, Unparsed):
        return replace(shown, failure=parsed)
    lacks = None
    if ended == "length":
        lacks = Unparsed("truncated", "", cut_off.why)
    elif not reason:
        lacks = Unparsed("off_grammar", "", "nothing follows the score line")
    return replace(shown, scores=parsed.values, reason=None if lacks else reason, reason_failure=lacks)


def split_score_line(text: str, scale: tuple[float, float]) -> tuple[str, str]:
    """The score line with its line end, and the reason behind it, stripped.

    The scores may stand on two lines (`Assistant 1: 8`, `Assistant 2: 6`). Without any the first line counts as theirs.
    """
    lines = text.lstrip().splitlines(keepends=True)
    for count in (1, 2):
        line = "".join(lines[:count])
        if not isinstance(parse_pair(line, scale), Unparsed):
            return line, "".join(lines[count:]).strip()
    return "".join(lines[:1]), "".join(lines[1:]).strip()
