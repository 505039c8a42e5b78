"""One answer to a question about an image, graded behind an answer that is known to be right.

The judge reads text alone: the reference says what is to be seen (JudgeLM, Figure 20). A judge that can see may be
shown the images too.

Source: JudgeLM, section 6.4 (judging multimodal models), Figures 7 and 20 to 23; data as in MM-Vet (Yu et al. 2023).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from judgelm.errors import ConfigError, InputError
from judgelm.modes.flow import Flow
from judgelm.modes.pair_replies import read_reply
from judgelm.modes.reasons import explain, places_to_explain
from judgelm.modes.sampling import sampling_for
from judgelm.prompts.multimodal import MultimodalTemplate, Wording, multimodal_template, read_gold
from judgelm.records import Completion, GradeVerdict, Judgment, Prompt, Request, Sample, Sampling, Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal:
    """Grade one answer against the reference.

    `sample.answers[0]` is the answer, `sample.reference` the gold answer. That one may hold MM-Vet's `<OR>` and
    `<AND>`; its first alternative is shown as the first assistant's answer (the original code draws one, with no seed).

    Attributes:
        wording: `code` (the original code's, asks for a score line), `paper` (Figure 7, does not), `chat` (the code's
            words as chat messages).
        anchored: force the first answer's full score, as in Figures 21 to 23; else the judge writes both scores, and
            the first is kept as `Shown.anchor`.
        images: `ignore` judges by the reference alone, as the paper does; `auto` shows a vision-language judge the
            images of the samples that have some; `use` expects some. An engine or model that cannot see refuses them.
        scale: lowest and highest score of the judge.
        reasons: `all` judgments are explained, or `none`.
        reason_tokens: most tokens of a reason.
        temperature: 0 is greedy; otherwise each sample draws with its own seed, made of `seed` and its id.
        max_tokens: room for the score line.

    Raises:
        ConfigError: an option that does not exist, or is out of range.
    """

    name: ClassVar[str] = "multimodal"
    answers: ClassVar[tuple[int, int | None]] = (1, 1)
    reference: ClassVar[Literal["use"]] = "use"

    wording: Wording = "code"
    anchored: bool = True
    images: Literal["ignore", "auto", "use"] = "ignore"
    scale: tuple[float, float] = (1, 10)
    reasons: Literal["none", "all"] = "none"
    reason_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 24

    def __post_init__(self) -> None:
        """Check each option."""
        multimodal_template(self.wording)
        for name, known in (("reasons", ("none", "all")), ("images", ("ignore", "auto", "use"))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} {getattr(self, name)!r} does not exist here; there are: {', '.join(known)}")
        for name in ("max_tokens", "reason_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")

    @property
    def prompt(self) -> MultimodalTemplate:
        """What the judge is asked with."""
        return multimodal_template(self.wording)

    @property
    def template(self) -> str:
        """Id of that, which manifests keep."""
        return self.prompt.id

    @property
    def template_sha(self) -> str:
        """Hash of its bytes."""
        return self.prompt.sha

    def check(self, sample: Sample) -> None:
        """See that a sample can be judged.

        Raises:
            InputError: it has not one answer and a reference, or no image where images are to be shown.
        """
        if len(sample.answers) != 1 or sample.reference is None or not read_gold(sample.reference).alternatives:
            raise InputError(
                f"sample {sample.id}: multimodal judging needs one answer and a reference, got {len(sample.answers)} "
                f"and {'none' if sample.reference is None else 'one'}; give each row `answer` and `reference`"
            )
        if self.images == "use" and not sample.images:
            raise InputError(
                f"sample {sample.id}: no image to show the judge; give each row `image`, or judge with images=ignore"
            )

    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line, then for the reason.

        Raises:
            InputError: the sample cannot be judged.
        """
        self.check(sample)
        prompt = self.prompt_of(sample)
        sampling = self._sampling(sample, self.max_tokens, ("\n",))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        shown = self._read(prompt, completion)
        judgment = Judgment(
            sample_id=sample.id,
            mode=self.name,
            verdict=None if shown.scores is None else GradeVerdict(score=shown.scores[0]),
            shown=(shown,),
            scores=shown.scores,
            failure=shown.failure,
            sanitized=prompt.sanitized + completion.sanitized,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
        )
        going_on = replace(self._sampling(sample, self.reason_tokens, ()), reserve=self.max_tokens)
        return (yield from explain(judgment, places_to_explain(judgment, self.reasons, 0), [prompt], going_on))

    def prompt_of(self, sample: Sample) -> Prompt:
        """What the judge sees."""
        full_score = self.scale[1] if self.anchored else None
        return self.prompt.render(sample, full_score=full_score, images=self.images != "ignore")

    def _read(self, prompt: Prompt, completion: Completion) -> Shown:
        """The score of the second answer; what was forced is part of the text, as what a reason goes on from."""
        whole = replace(completion, texts=tuple(prompt.prefill + text for text in completion.texts))
        read = read_reply((0,), whole, scale=self.scale, max_tokens=self.max_tokens)
        if read.scores is None:
            return replace(read, referenced=True)
        anchor, score = read.scores
        return replace(read, referenced=True, anchor=anchor, scores=(score,))

    def _sampling(self, sample: Sample, max_tokens: int, stop: tuple[str, ...]) -> Sampling:
        return sampling_for(sample.id, temperature=self.temperature, seed=self.seed, max_tokens=max_tokens, stop=stop)
