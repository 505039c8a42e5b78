"""One answer to a question about an image, graded behind an answer that is known to be right.

The judge reads text alone: the reference says what is to be seen (JudgeLM, Figure 20). A judge that can see may be
shown the images too.

Source: JudgeLM, section 6.4 (judging multimodal models), Figures 7 and 20 to 23; data as in MM-Vet (Yu et al. 2023).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from judgelm.errors import InputError
from judgelm.modes.completions import graded, read_reply, with_usage
from judgelm.modes.flow import Flow
from judgelm.modes.options import check_above_zero, check_choices, sampling_for
from judgelm.modes.reasons import Explained, explain, to_explain
from judgelm.parsing.scores import parse_pair
from judgelm.prompts.multimodal import MultimodalTemplate, Wording, multimodal_template, read_gold
from judgelm.records import Completion, Prompt, Request, Sample, Shown

Images = Literal["ignore", "auto", "use"]


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
    images: Images = "ignore"
    scale: tuple[float, float] = (1, 10)
    reasons: Explained = "none"
    reason_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 24

    def __post_init__(self) -> None:
        """Check each option."""
        multimodal_template(self.wording)
        check_choices(self, reasons=Explained, images=Images)
        check_above_zero(self, "max_tokens", "reason_tokens")

    @property
    def prompt(self) -> MultimodalTemplate:
        """The prompt of this wording."""
        return multimodal_template(self.wording)

    @property
    def template(self) -> str:
        """Its id in manifests."""
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

    @with_usage
    def __call__(self, sample: Sample) -> Flow:
        """Ask for the score line, then for the reason.

        Raises:
            InputError: the sample cannot be judged.
        """
        self.check(sample)
        prompt = self.prompt_of(sample)
        sampling = sampling_for(self, sample.id, self.max_tokens, stop=("\n",))
        [completion] = yield [Request(key="0", prompt=prompt, sampling=sampling)]
        judgment = graded(self, sample, self._read(prompt, completion))
        begun = replace(prompt, prefill="")  # the text has it
        sampling = sampling_for(self, sample.id, self.reason_tokens, reserve=self.max_tokens)
        return (yield from explain(judgment, to_explain(judgment, self.reasons), [begun], sampling))

    def prompt_of(self, sample: Sample) -> Prompt:
        """The prompt that the judge reads."""
        full_score = self.scale[1] if self.anchored else None
        return self.prompt.render(sample, full_score=full_score, images=self.images != "ignore")

    def _read(self, prompt: Prompt, completion: Completion) -> Shown:
        """The score of the second answer; the prefill is part of the text, which a reason continues."""
        whole = replace(completion, texts=tuple(prompt.prefill + text for text in completion.texts))
        parse = partial(parse_pair, scale=self.scale)
        shown = read_reply(whole, parse, max_tokens=self.max_tokens, referenced=True)
        if shown.scores is None:
            return shown
        anchor, score = shown.scores
        return replace(shown, anchor=anchor, scores=(score,))
