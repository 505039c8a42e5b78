"""A fitted prompt as vLLM is handed it: token ids, and the images whose tokens it writes itself."""

from collections.abc import Sequence

from vllm.inputs import TokensPrompt

from judgelm.engines.transformers.vision import Vision
from judgelm.prompts.truncation import Fitted, Fitter


def tokens_prompt(
    fitted: Fitted, behind: Sequence[int], *, chat: bool, fitter: Fitter, vision: Vision | None
) -> TokensPrompt:
    """The prompt and what of a reply stands behind it.

    It was fitted with all tokens of its images. vLLM wants the one that a chat template writes for each: it runs the
    model's processor too, and puts in the others.

    Args:
        fitted: by the length policy.
        behind: token ids.
        chat: whether the tokenizer's chat template has already put special tokens into the text.
        fitter: what it was fitted with.
        vision: of a vision-language model.
    """
    if vision is None or not fitted.images:
        return TokensPrompt(prompt_token_ids=[*fitted.ids, *behind])
    seen = [vision.see(image) for image in fitted.images]
    text, rest = "", fitted.text
    for one in seen:
        before, _, rest = rest.partition(one.text)
        text += before + vision.placeholder
    return TokensPrompt(
        prompt_token_ids=[*fitter.encode(text + rest, chat=chat), *behind],
        multi_modal_data={"image": [one.picture for one in seen]},
    )
