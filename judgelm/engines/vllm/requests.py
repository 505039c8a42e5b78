"""A request as vLLM takes it: prompt and sampling parameters, for the reply and the branches of its candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm import RequestOutput, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from judgelm.engines.candidates import CandidateSearch
from judgelm.engines.images import Vision
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Request, Sampling


@dataclass(slots=True, eq=False)
class RequestState:
    """A request in flight.

    Attributes:
        search: the search for its candidates' probabilities.
        output: vLLM's latest output for the reply.
        pending: vLLM's unfinished requests for it, with the node of the candidates' tree that each continues from.
        begun: token ids of the reply's beginning, where vLLM stopped at an empty first line and was made to go on.
        failure: why it failed; empty if it did not.
    """

    request: Request
    tokenized: TokenizedPrompt
    search: CandidateSearch | None
    output: RequestOutput | None = None
    pending: dict[str, int] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    failure: str = ""


def tokens_prompt(
    state: RequestState, continuation: Sequence[int], *, truncator: Truncator, vision: Vision | None
) -> TokensPrompt:
    """The prompt, followed by the beginning of a reply.

    The prompt was truncated with all tokens of its images. vLLM takes only the placeholder that a chat template writes
    for each image: it runs the model's processor itself, which inserts the others.

    Args:
        state: the request.
        continuation: token ids of the reply's beginning.
        truncator: tokenises the prompt.
        vision: of a vision-language model.
    """
    tokenized = state.tokenized
    if vision is None or not tokenized.images:
        return TokensPrompt(prompt_token_ids=[*tokenized.ids, *continuation])
    images = [vision.process(image) for image in tokenized.images]
    text, rest = "", tokenized.text
    for image in images:
        before, _, rest = rest.partition(image.text)
        text += before + vision.placeholder
    return TokensPrompt(
        prompt_token_ids=[*truncator.encode(text + rest, chat=state.request.prompt.chat), *continuation],
        multi_modal_data={"image": [image.picture for image in images]},
    )


def reply_sampling(sampling: Sampling, search: CandidateSearch | None) -> SamplingParams:
    """Parameters for the reply: with an output after every token, or one at the end for several replies.

    Raises:
        ValueError, VLLMValidationError: vLLM does not support the sampling.
    """
    n = sampling.n if sampling.temperature > 0 else 1  # vLLM refuses several greedy replies, which are equal
    # of several replies each would have to go on behind its own empty line: they run on, and are cut when decoded
    stop = [mark for mark in sampling.stop if n == 1 or not mark.isspace()]
    return SamplingParams(
        n=n,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed if sampling.temperature > 0 else None,
        stop=stop or None,
        include_stop_str_in_output=sampling.include_stop,
        structured_outputs=StructuredOutputsParams(regex=sampling.grammar) if sampling.grammar else None,
        logprob_token_ids=list(search.tree.vocabulary) if search else None,
        output_kind=RequestOutputKind.CUMULATIVE if n == 1 else RequestOutputKind.FINAL_ONLY,
    )


def branch_sampling(search: CandidateSearch, node: int) -> SamplingParams:
    """Parameters for a branch: as many tokens as the tree is deep, so that the reply's path closes its nodes."""
    return SamplingParams(
        max_tokens=search.tree.depth_below[node],
        temperature=0.0,
        detokenize=False,
        logprob_token_ids=list(search.tree.vocabulary),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
