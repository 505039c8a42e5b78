"""How vLLM is to sample: a reply as it was asked for, and the branches of its candidates' tree."""

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from judgelm.engines.candidate_search import CandidateSearch
from judgelm.engines.model_files import first_line
from judgelm.errors import EngineError
from judgelm.records import Sampling


def reply_sampling(wanted: Sampling, search: CandidateSearch | None) -> SamplingParams:
    """For the reply itself: told of after every token, unless there are several, which vLLM puts together at the end.

    Raises:
        EngineError: vLLM has no such sampling.
    """
    n = wanted.n if wanted.temperature > 0 else 1  # vLLM refuses several greedy replies: they are alike
    try:
        return SamplingParams(
            n=n,
            max_tokens=wanted.max_tokens,
            temperature=wanted.temperature,
            seed=wanted.seed if wanted.temperature > 0 else None,
            stop=list(wanted.stop) or None,
            include_stop_str_in_output=wanted.include_stop,
            structured_outputs=StructuredOutputsParams(regex=wanted.grammar) if wanted.grammar else None,
            logprob_token_ids=list(search.tree.vocabulary) if search else None,
            output_kind=RequestOutputKind.CUMULATIVE if n == 1 else RequestOutputKind.FINAL_ONLY,
        )
    except ValueError as error:
        raise EngineError(f"vLLM does not sample like that: {first_line(error)}") from error


def branch_sampling(search: CandidateSearch, node: int) -> SamplingParams:
    """As far down as the tree goes: the reply's own way closes the nodes on it."""
    return SamplingParams(
        max_tokens=search.tree.depth_below[node],
        temperature=0.0,
        detokenize=False,
        logprob_token_ids=list(search.tree.vocabulary),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
