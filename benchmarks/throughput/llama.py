"""llama.cpp as a system to be measured, through llama-cpp-python."""

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.dummy_model import prompt_of
from benchmarks.throughput.baselines import SCORE_TOKENS, Work, Workload
from judgelm.records import Sample

_WINDOW, _BATCH = 4096, 512


class LlamaCpp:
    """llama.cpp through llama-cpp-python, a prompt at a time; what a prompt shares with the one before is kept.

    Args:
        gguf: the model's file; its tokenizer is not used.
        folder: of the tokenizer.
        template: of the prompts.

    Raises:
        ModuleNotFoundError: llama-cpp-python is not installed.
    """

    def __init__(self, gguf: Path, folder: Path, template: str) -> None:
        from llama_cpp import Llama

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._template = template
        threads = torch.get_num_threads()
        self._llama = Llama(
            str(gguf), n_ctx=_WINDOW, n_batch=_BATCH, n_ubatch=_BATCH, n_threads=threads,
            n_threads_batch=threads, verbose=False,
        )  # fmt: skip

    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Judge them one by one, score lines only."""
        [line_end] = self._tokenizer("\n", add_special_tokens=False).input_ids
        prompt_tokens = completion_tokens = 0
        began = time.perf_counter()
        for sample in samples:
            ids = self._tokenizer(prompt_of(sample, self._template)).input_ids
            prompt_tokens += len(ids)
            for token in islice(self._llama.generate(ids, temp=0.0), SCORE_TOKENS):
                completion_tokens += 1
                if token in (line_end, self._tokenizer.eos_token_id):
                    break
        return Work(
            pairs=len(samples),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            seconds=time.perf_counter() - began,
        )
