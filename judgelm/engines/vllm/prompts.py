"""A fitted prompt as vLLM is handed it: token ids, and the images whose tokens it writes itself."""

from collections.abc import Sequence

from vllm.inputs import TokensPrompt

from judgelm.engines.transformers.vision import Vision
from judgelm.prompts.truncation import TokenizedPrompt, Truncator


def tokens_prompt(
    tokenized: TokenizedPrompt, behind: Sequence[int], *, chat: bool, truncator: Truncator, vision: Vision | None
) -> TokensPrompt:
    """The prompt and what of a reply stands behind it.

    It was fitted with all tokens of its images. vLLM wants the one that a chat template writes for each: it runs the
    model's processor too, and puts in the others.

    Args:
        tokenized: by the length policy.
        behind: token ids.
        chat: whether the tokenizer's chat template has already put special tokens into the text.
        truncator: what it was fitted with.
        vision: of a vision-language model.
    """
    if vision is None or not tokenized.images:
        return TokensPrompt(prompt_token_ids=[*tokenized.ids, *behind])
    seen = [vision.process(image) for image in tokenized.images]
    text, rest = "", tokenized.text
    for one in seen:
        before, _, rest = rest.partition(one.text)
        text += before + vision.placeholder
    return TokensPrompt(
        prompt_token_ids=[*truncator.encode(text + rest, chat=chat), *behind],
        multi_modal_data={"image": [one.picture for one in seen]},
    )
