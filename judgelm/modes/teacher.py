"""A teacher's judgment of a pair for training: the score line and the reason behind it, in one reply.

A judge that scores and explains in one reply is what it is trained to become; `pairwise` asks a trained one for the
score line first and explains only where that was asked for.

Source: JudgeLM, section 3.1 and Figures 3 and 4 (the prompts to GPT-4, without and with a reference).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.modes.completions import cut_off, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.options import check_above_zero, sampling_for
from judgelm.modes.pairwise import winner_of
from judgelm.parsing.scores import parse_pair, split_score_line
from judgelm.prompts.catalog import get_template
from judgelm.records import Completion, Judgment, PairVerdict, Request, Sample, Shown, Unparsed

_ORDER = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherMode:
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
        check_above_zero(self, "reason_tokens")

    @property
    def template_sha(self) -> str:
        """Hash of the template's bytes for a pair."""
        return get_template(self.template).sha

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask, and read the one reply."""
        [completion] = yield [self.request(sample)]
        shown = self._read(completion)
        scores = None if shown.scores is None else (shown.scores[0], shown.scores[1])
        return Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if scores is None else PairVerdict(winner=winner_of(scores)),
            shown=(shown,),
            scores=scores,
            failure=shown.failure,
        )

    def request(self, sample: Sample) -> Request:
        """The request to the teacher."""
        sampling = sampling_for(self, sample.id, self.reason_tokens)
        prompt = get_template(self.template).render(sample, _ORDER, sample.reference)
        return Request(key="0", prompt=prompt, sampling=sampling)

    def _read(self, completion: Completion) -> Shown:
        """A reply of scores and reason; `text` is the whole of it as it came.

        A reply that ends within its score line is a failure even where its beginning looks like scores. One whose
        reason lacks its end, or which has no reason, has scores and says so in `reason_failure`; half a reason is not
        kept.
        """
        line, reason = split_score_line("".join(completion.texts), self.scale)
        shown = read_reply(
            completion,
            partial(parse_pair, scale=self.scale),
            max_tokens=self.reason_tokens,
            order=_ORDER,
            needs_end=not line.endswith(("\n", "\r")),
        )
        if shown.failure is not None:
            return shown
        lacks = cut_off(completion, self.reason_tokens)
        if lacks is None and not reason:
            lacks = Unparsed("off_grammar", "", "nothing follows the score line")
        return replace(shown, reason=None if lacks else reason, reason_failure=lacks)
