"""Ways to judge the same pairs with the same model, to be timed against each other.

The original JudgeLM's loop, a padded batch through `generate`, vLLM's own `LLM.generate`, and the engines here. Each
has the model loaded and judges when it is told to, so that they can take turns.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria

from judgelm.doctor.yardstick import TEMPLATE, prompt_of
from judgelm.engines.base import Engine, EngineOptions, require
from judgelm.engines.model_files import load_tokenizer
from judgelm.engines.vllm.environment import quiet_imports
from judgelm.errors import EngineError
from judgelm.modes import Pairwise
from judgelm.records import Completion, Judgment, Request, Sample
from judgelm.runs.runner import judge

Row = Literal["score", "distribution", "both", "reasons"]
REASON_TOKENS, SCORE_TOKENS, ORIGINAL_TOKENS = 256, 24, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a contender did: pairs, tokens, the seconds it took, and the share of them its engine was not at work."""

    pairs: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    idle: float | None = None


class Contender(Protocol):
    """Judges pairs with a model that is loaded."""

    def judge(self, samples: Sequence[Sample], row: Row) -> Work:
        """Judge all of them as the row asks."""
        ...


class Clocked:
    """An engine that knows how long it was at work: within `collect`, where its passes run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.supports_grammar = engine.supports_grammar
        self.supports_images = engine.supports_images
        self.thinking = engine.thinking
        self.at_work_s = 0.0

    @property
    def max_in_flight(self) -> int:
        """As the engine's."""
        return self._engine.max_in_flight

    def submit(self, requests: Sequence[Request]) -> None:
        """Hand over; tokenising is not the engine's work."""
        self._engine.submit(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work, and count the time."""
        began = time.perf_counter()
        done = self._engine.collect(timeout_s)
        self.at_work_s += time.perf_counter() - began
        return done

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """As the engine's."""
        return self._engine.progress(keys)

    def abort(self, keys: Iterable[str]) -> None:
        """As the engine's."""
        self._engine.abort(keys)

    def describe(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.describe()

    def stats(self) -> dict[str, Any]:
        """As the engine's."""
        return self._engine.stats()

    def close(self) -> None:
        """As the engine's."""
        self._engine.close()


class Runner:
    """An engine of this package, driven by its runner."""

    def __init__(self, engine: Engine) -> None:
        self._engine = Clocked(engine)
        self.judgments: list[Judgment] = []

    def judge(self, samples: Sequence[Sample], row: Row) -> Work:
        """Judge them, and keep the judgments.

        Raises:
            EngineError: a pair could not be judged, so the time would say nothing.
        """
        self._engine.at_work_s = 0.0
        began = time.perf_counter()
        self.judgments = list(judge(samples, mode_of(row), self._engine))
        seconds = time.perf_counter() - began
        failed = [one.failure.why or one.failure.code for one in self.judgments if one.failure is not None]
        if failed:
            raise EngineError(f"{len(failed)} of {len(samples)} pairs were not judged: {failed[0]}")
        return Work(
            pairs=len(samples),
            prompt_tokens=sum(one.prompt_tokens for one in self.judgments),
            completion_tokens=sum(one.completion_tokens for one in self.judgments),
            seconds=seconds,
            idle=1 - self._engine.at_work_s / seconds,
        )


def mode_of(row: Row) -> Pairwise:
    """The mode that a row stands for."""
    return Pairwise(
        template=TEMPLATE,
        both_orders=row == "both",
        distribution=row == "distribution",
        reasons="all" if row == "reasons" else "none",
        reason_tokens=REASON_TOKENS,
        max_tokens=SCORE_TOKENS,
    )


@dataclass(frozen=True, slots=True)
class Generating:
    """Model and tokenizer as `generate` wants them; the tokenizer pads on the left."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: str) -> "Generating":
        """Both from a folder."""
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        return cls(model.to(device).eval(), tokenizer)


class OriginalLoop:
    """`gen_model_judgement.py` of baaivision/JudgeLM: one prompt at a time, each line written at once.

    Args:
        loaded: the model.
        out: the file of judgments.
        fast: its `--if-fast-eval 1`, which stops at a line's end; without it only `</s>` stops.
        max_new_tokens: its `--max-new-token`.
    """

    def __init__(self, loaded: Generating, out: Path, *, fast: bool, max_new_tokens: int) -> None:
        self._loaded = loaded
        self._out = out
        self._mark = "\n" if fast else "</s>"
        self._max_new_tokens = max_new_tokens

    @torch.inference_mode()
    def judge(self, samples: Sequence[Sample], row: Row) -> Work:
        """Judge them one by one; the row does not matter to it."""
        prompt_tokens = completion_tokens = 0
        began = time.perf_counter()
        for number, sample in enumerate(samples):
            torch.manual_seed(number)
            ids = self._loaded.tokenizer([prompt_of(sample)]).input_ids
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
        found = False
        if self._asked:
            texts = self._tokenizer.batch_decode(input_ids[:, self._start :], skip_special_tokens=True)
            found = self._mark in texts[0]
        self._asked = True
        return torch.full((len(input_ids),), found, device=input_ids.device)


class PaddedBatches:
    """Static batches, padded on the left to their longest prompt; a batch ends when each of its lines has ended."""

    def __init__(self, loaded: Generating, *, batch: int) -> None:
        self._loaded = loaded
        self._batch = batch

    @torch.inference_mode()
    def judge(self, samples: Sequence[Sample], row: Row) -> Work:
        """Judge them batch by batch, score lines only."""
        prompt_tokens = completion_tokens = 0
        began = time.perf_counter()
        for start in range(0, len(samples), self._batch):
            texts = [prompt_of(sample) for sample in samples[start : start + self._batch]]
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

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(self, options: EngineOptions) -> None:
        require("vllm", extra="vllm")
        with quiet_imports():
            from vllm import LLM, SamplingParams
        from judgelm.engines.vllm.engine_args import engine_args, quiet_start

        tokenizer = load_tokenizer(options.model, None, options)
        with quiet_start(options.model, multiprocessing=False):
            self._llm = LLM.from_engine_args(engine_args(options.model, None, tokenizer, options))
        self._line = SamplingParams(temperature=0.0, max_tokens=SCORE_TOKENS, stop=["\n"])
        self._reason = SamplingParams(temperature=0.0, max_tokens=REASON_TOKENS)

    def judge(self, samples: Sequence[Sample], row: Row) -> Work:
        """Score lines; for reasons a second call goes on from them."""
        began = time.perf_counter()
        prompts = [prompt_of(sample) for sample in samples]
        outputs = list(self._llm.generate(prompts, self._line, use_tqdm=False))
        if row == "reasons":
            again = [f"{prompt}{one.outputs[0].text}\n" for prompt, one in zip(prompts, outputs, strict=True)]
            outputs += self._llm.generate(again, self._reason, use_tqdm=False)
        seconds = time.perf_counter() - began
        return Work(
            pairs=len(samples),
            prompt_tokens=sum(len(one.prompt_token_ids or ()) for one in outputs),
            completion_tokens=sum(len(one.outputs[0].token_ids) for one in outputs),
            seconds=seconds,
        )
