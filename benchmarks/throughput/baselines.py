"""Ways to judge the same pairs with the same model, to be timed against each other.

The original JudgeLM's loop, a padded batch through `generate`, and vLLM's own `LLM.generate`. Each has the model
loaded and judges when it is told to, so that they can take timings.
"""

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria

from benchmarks.dummy_model import TEMPLATE, prompt_of
from judgelm.engines.base import EngineOptions
from judgelm.engines.dependencies import require
from judgelm.engines.model_files import load_tokenizer
from judgelm.engines.vllm import quiet_imports
from judgelm.records import Sample

Workload = Literal["score", "distribution", "both", "reasons"]
REASON_TOKENS, SCORE_TOKENS, ORIGINAL_TOKENS = 256, 24, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of a system: pairs, tokens, the seconds it took, and the share of them its engine was not at work."""

    pairs: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    idle: float | None = None


class System(Protocol):
    """Judges pairs with a model that is loaded."""

    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Judge all of them as the workload asks."""
        ...


@dataclass(frozen=True, slots=True)
class PlainModel:
    """Model and tokenizer as `generate` wants them, which pads on the left, and the template of the prompts."""

    model: Any
    tokenizer: Any
    template: str = TEMPLATE

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: str, template: str = TEMPLATE) -> "PlainModel":
        """Model and tokenizer from a folder."""
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        return cls(model.to(device).eval(), tokenizer, template)


class OriginalLoop:
    """`gen_model_judgement.py` of baaivision/JudgeLM: one prompt at a time, each line written at once.

    Args:
        loaded: the model.
        out: the file of judgments.
        fast: its `--if-fast-eval 1`, which stops at a line's end; without it only `</s>` stops.
        max_new_tokens: its `--max-new-token`.
    """

    def __init__(self, loaded: PlainModel, out: Path, *, fast: bool, max_new_tokens: int) -> None:
        self._loaded = loaded
        self._out = out
        self._mark = "\n" if fast else "</s>"
        self._max_new_tokens = max_new_tokens

    @torch.inference_mode()
    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Judge them one by one; the workload does not matter to it."""
        prompt_tokens = completion_tokens = 0
        began = time.perf_counter()
        for index, sample in enumerate(samples):
            torch.manual_seed(index)
            ids = self._loaded.tokenizer([prompt_of(sample, self._loaded.template)]).input_ids
            stop: Any = _OriginalStop(self._mark, self._loaded.tokenizer, len(ids[0]))
            replies = self._loaded.model.generate(
                torch.as_tensor(ids, device=self._loaded.model.device),
                do_sample=False,
                max_new_tokens=self._max_new_tokens,
                stopping_criteria=[stop],
            )
            reply = replies[0][len(ids[0]) :]
            text = self._loaded.tokenizer.decode(reply, skip_special_tokens=True, spaces_between_special_tokens=False)
            text = text[: text.find(self._mark)].strip()
            self._write(sample, text)
            prompt_tokens += len(ids[0])
            completion_tokens += len(reply)
        return Work(
            pairs=len(samples),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            seconds=time.perf_counter() - began,
        )

    def _write(self, sample: Sample, text: str) -> None:
        line = {
            "question_id": sample.id,
            "question_body": sample.question,
            "answer1_body": sample.answers[0],
            "answer2_body": sample.answers[1],
            "pred_id": uuid.uuid4().hex,
            "pred_text": text,
            "tstamp": time.time(),
        }
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class _OriginalStop(StoppingCriteria):
    """The original's stop rule: decode the whole reply after each token, but the first, and look for the mark."""

    def __init__(self, mark: str, tokenizer: Any, start: int) -> None:
        self._mark = mark
        self._tokenizer = tokenizer
        self._start = start
        self._asked = False

    def __call__(self, input_ids: Tensor, scores: Tensor, **others: Any) -> Any:  # transformers types it too narrowly
        stopped = False
        if self._asked:
            texts = self._tokenizer.batch_decode(input_ids[:, self._start :], skip_special_tokens=True)
            stopped = self._mark in texts[0]
        self._asked = True
        return torch.full((len(input_ids),), stopped, device=input_ids.device)


class PaddedBatches:
    """Static batches, padded on the left to their longest prompt; a batch ends when each of its lines has ended."""

    def __init__(self, loaded: PlainModel, *, batch: int) -> None:
        self._loaded = loaded
        self._batch = batch

    @torch.inference_mode()
    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Judge them batch by batch, score lines only."""
        prompt_tokens = completion_tokens = 0
        began = time.perf_counter()
        for start in range(0, len(samples), self._batch):
            texts = [prompt_of(sample, self._loaded.template) for sample in samples[start : start + self._batch]]
            inputs = self._loaded.tokenizer(texts, padding=True, return_tensors="pt").to(self._loaded.model.device)
            inputs.pop("token_type_ids", None)
            replies = self._loaded.model.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=SCORE_TOKENS,
                stop_strings=["\n"],
                tokenizer=self._loaded.tokenizer,
            )[:, inputs["input_ids"].shape[1] :]
            self._loaded.tokenizer.batch_decode(replies, skip_special_tokens=True)
            prompt_tokens += int(inputs["attention_mask"].sum())
            completion_tokens += int((replies != self._loaded.tokenizer.pad_token_id).sum())
        return Work(
            pairs=len(samples),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            seconds=time.perf_counter() - began,
        )


class PlainVllm:
    """vLLM's own `LLM.generate` on all prompts at once, with the arguments that the engine here has.

    Args:
        options: as the engine's.
        template: of the prompts.

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(self, options: EngineOptions, template: str = TEMPLATE) -> None:
        require("vllm", extra="vllm")
        with quiet_imports():
            from vllm import LLM, SamplingParams
        from judgelm.engines.vllm.arguments import engine_args
        from judgelm.engines.vllm.backends import quiet_start

        self._template = template
        tokenizer = load_tokenizer(options.model, None, options)
        with quiet_start(options.model, multiprocessing=False):
            self._llm = LLM.from_engine_args(engine_args(options.model, None, tokenizer, options))
        self._line = SamplingParams(temperature=0.0, max_tokens=SCORE_TOKENS, stop=["\n"])
        self._reason = SamplingParams(temperature=0.0, max_tokens=REASON_TOKENS)

    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Score lines; for reasons a second call goes on from them."""
        began = time.perf_counter()
        prompts = [prompt_of(sample, self._template) for sample in samples]
        outputs = list(self._llm.generate(prompts, self._line, use_tqdm=False))
        if workload == "reasons":
            again = [f"{prompt}{output.outputs[0].text}\n" for prompt, output in zip(prompts, outputs, strict=True)]
            outputs += self._llm.generate(again, self._reason, use_tqdm=False)
        seconds = time.perf_counter() - began
        return Work(
            pairs=len(samples),
            prompt_tokens=sum(len(output.prompt_token_ids or ()) for output in outputs),
            completion_tokens=sum(len(output.outputs[0].token_ids) for output in outputs),
            seconds=seconds,
        )
