"""GRPO training for judges that reason before they give a verdict (`train/grpo.py`).

Each pair is shown in both orders, and several replies are sampled per prompt. The reward is

    right * (share of right verdicts in the other order) + form_weight * form + length_weight * length

`right` is 1 for a well-formed reply with the right verdict, otherwise 0. `form` is 0 for a well-formed reply, otherwise
-1. `length` falls from 0 at `soft` tokens to -1 at the limit. The first term is the J1 reward (1 if both replies are
right), averaged over pairs of replies.

Sources: GRPO from DeepSeekMath (Shao et al. 2024, arXiv 2402.03300); consistency reward from J1 (Whitehouse et al.
2025); RM-R1; linear length penalty from DAPO (Yu et al. 2025).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions, version
from typing import Any, Literal, NamedTuple

import datasets
import numpy as np
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers.trainer_utils import EvalLoopOutput
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.errors import ConfigError
from judgelm.modes.pairwise import read_pair_verdict, reasoned_template
from judgelm.package import extra_requirements
from judgelm.parsing.thinking import separate
from judgelm.prompts.truncation import Truncator
from judgelm.records import Unparsed
from judgelm.training.arguments import PLAIN_LOSS, JudgeArguments, argument, check_fixed, check_not_negative
from judgelm.training.precision import PrecisionMixin
from judgelm.training.rows.builder import FastTokenizer
from judgelm.training.rows.dataset import EpochRows
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin


class Attempt(NamedTuple):
    """A graded reply; `order` is 1 if the answers were swapped."""

    pair: int
    order: int
    right: bool


def read_form(text: str, *, ended: bool, min_letters: int) -> Literal[1, 2] | Unparsed:
    """Return the position of the better answer in the prompt, or the reason the reply is malformed.

    Thinking counts as reasoning.
    """
    if not ended:
        return Unparsed("truncated", text, "the reply did not end within the token limit")
    reply = separate(text)
    if not reply.closed:
        return Unparsed("truncated", text, "the thinking did not end")
    verdict = read_pair_verdict(reply.reply)
    if isinstance(verdict, Unparsed):
        return verdict
    reasons = (reply.thinking or "") + reply.reply[: verdict.position]
    if sum(map(str.isalpha, reasons)) < min_letters:
        return Unparsed("off_grammar", text, f"fewer than {min_letters} letters of reasoning before the verdict")
    return 1 if verdict.label == "1" else 2


def both_orders_right(attempts: Sequence[Attempt]) -> list[float | None]:
    """Return 0 for wrong attempts, otherwise the other order's share of right attempts (None if there are none)."""
    groups: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.pair, attempt.order].append(attempt.right)
    shares = {key: sum(rights) / len(rights) for key, rights in groups.items()}
    others = [shares.get((attempt.pair, 1 - attempt.order)) for attempt in attempts]
    rewarded = zip(attempts, others, strict=True)
    return [None if share is None else share if attempt.right else 0.0 for attempt, share in rewarded]


def length_penalty(tokens: int, *, soft: int, limit: int) -> float:
    """Return 0 up to `soft` tokens, falling linearly to -1 at `limit`. `soft` must be less than `limit`."""
    return -min(1.0, max(0, tokens - soft) / (limit - soft))


_SOFT_SHARE = 0.75


@dataclass(kw_only=True)
class GRPOArguments(JudgeArguments):
    """Arguments for `train/grpo.py`. The rows are as for `train/preference.py`, but without ties."""

    template: str = argument("Prompt template: reasoned-chat or reasoned-compact.", default="reasoned-chat")
    swap_prob: float = argument("Has no effect, because each pair is always shown in both orders.", default=0.0)
    form_weight: float = argument(
        "Penalty for a reply that does not end, or that lacks a verdict or reasons.", default=0.2
    )
    length_weight: float = argument("Penalty for a reply of max_completion_length tokens.", default=0.1)
    soft_length: int | None = argument(
        "Maximum number of reply tokens without a length penalty. Default: 3/4 of max_completion_length.", default=None
    )
    least_letters: int = argument("Minimum number of letters of reasoning before the verdict.", default=20)

    def soft(self, limit: int) -> int:
        """Return the length in tokens above which a reply is penalised."""
        return int(limit * _SOFT_SHARE) if self.soft_length is None else self.soft_length


class VerdictRewards:
    """The terms of the reward as TRL reward functions."""

    def __init__(self, judge: GRPOArguments, *, limit: int, eos_ids: Sequence[int]) -> None:
        self._judge = judge
        self._limit = limit
        self.eos_ids = frozenset(eos_ids)

    def both_orders_right(
        self,
        completions: list[str],
        completion_ids: list[list[int]],
        pair: list[int],
        order: list[int],
        best: list[int],
        **_: Any,
    ) -> list[float | None]:
        """Return the first reward term. Replies for the other order may be on other processes."""
        own = []
        for text, ids, pair_number, shown, better in zip(completions, completion_ids, pair, order, best, strict=True):
            verdict = self._read(text, ids)
            right = not isinstance(verdict, Unparsed) and verdict == better
            own.append(Attempt(int(pair_number), int(shown), right))
        attempts = [Attempt(*each) for each in gather_object(own)]
        begin = PartialState().process_index * len(own)  # every process has the same number of replies
        return both_orders_right(attempts)[begin : begin + len(own)]

    def form(self, completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        """Return 0 for a well-formed reply, otherwise -1."""
        replies = zip(completions, completion_ids, strict=True)
        return [-1.0 if isinstance(self._read(text, ids), Unparsed) else 0.0 for text, ids in replies]

    def length(self, completion_ids: list[list[int]], **_: Any) -> list[float]:
        """Return the length penalty of each reply."""
        soft = self._judge.soft(self._limit)
        return [length_penalty(len(ids), soft=soft, limit=self._limit) for ids in completion_ids]

    def _read(self, text: str, ids: list[int]) -> Any:
        ended = bool(ids) and ids[-1] in self.eos_ids
        return read_form(text, ended=ended, min_letters=self._judge.least_letters)


class _RewardedVerdicts(GRPOTrainer):
    def __init__(self, *, judge: GRPOArguments, window: int, model: Any, args: Any, **options: Any) -> None:
        rewards = VerdictRewards(judge, limit=args.max_completion_length, eos_ids=())
        args.reward_weights = [1.0, judge.form_weight, judge.length_weight]
        if args.use_vllm and args.vllm_max_model_length is None:
            args.vllm_max_model_length = window
        functions: list[Any] = [rewards.both_orders_right, rewards.form, rewards.length]
        super().__init__(model=model, args=args, reward_funcs=functions, **options)
        rewards.eos_ids = frozenset(self.eos_token_ids)
        self._chat = reasoned_template(judge.template).chat
        self._truncator = Truncator(FastTokenizer(self.processing_class), window)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Tokenise prompts like the engines; TRL would repeat a chat's first token."""
        return [self._truncator.encode(prompt, chat=self._chat) for prompt in prompts], None, {}

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics={}, num_samples=1)


class VerdictTrainer(JudgeMixin, _RewardedVerdicts):
    """Trainer for judges that reason before they give a verdict; `window` limits the prompt and reply together."""


def prompts_of_a_generation(args: Any) -> int:
    """Return the number of prompts per generation batch across all processes."""
    return int(args.generation_batch_size) // int(args.num_generations)


def in_both_orders(rows: EpochRows, *, step: int) -> EpochRows:
    """Return one prompt per row, with both orders of a pair next to each other. `best` is the better answer's position.

    `step` is the number of prompts per generation batch.
    """
    pairs = rows.dataset
    if not (count := len(pairs) * 2 // step * step):
        raise ConfigError(f"found {len(pairs)} training pairs, but one generation needs {step // 2}; add more pairs")
    index = np.arange(count)
    table = {"sample_id": np.repeat(pairs["sample_id"][:], 2)[:count].tolist(), "pair": index // 2, "order": index % 2}

    def show(batch: dict[str, Any]) -> dict[str, Any]:
        shown = [pairs[int(pair)] for pair in batch["pair"]]
        orders = batch["order"]
        return batch | {
            "prompt": [row["swapped" if order else "prompt"] for row, order in zip(shown, orders, strict=True)],
            "best": [3 - row["winner"] if order else row["winner"] for row, order in zip(shown, orders, strict=True)],
        }

    return replace(rows, dataset=datasets.Dataset.from_dict(table).with_transform(show), per_epoch=2 * rows.per_epoch)


def check_grpo_arguments(judge: GRPOArguments, args: Any) -> None:
    """Check the arguments and the installed vLLM version."""
    reasoned_template(judge.template)
    if args.use_vllm and (fault := vllm_fault(installed_vllm())) is not None:
        raise ConfigError(f"use_vllm is set, but {fault}")
    check_fixed(judge, PLAIN_LOSS | {"reason_prob": 1.0, "global_batch": None}, "GRPO does not support this")
    for name, reason in (
        ("reward_weights", "the reward is set by form_weight and length_weight"),
        ("vllm_structured_outputs_regex", "form_weight already penalises malformed replies"),
    ):
        if getattr(args, name) is not None:
            raise ConfigError(f"{name} is set, but {reason}; remove {name}")
    if args.num_iterations != 1:
        raise ConfigError(f"num_iterations is {args.num_iterations}, but only 1 is supported; remove num_iterations")
    if args.train_sampling_strategy != "random":
        raise ConfigError("train_sampling_strategy is set, but pairs are always shuffled; remove it")
    check_not_negative(judge, "form_weight", "length_weight", "least_letters")
    limit = args.max_completion_length
    if not limit or args.max_length is None or limit >= args.max_length:
        raise ConfigError(f"max_completion_length is {limit}; it must be less than max_length ({args.max_length})")
    if not 0 <= judge.soft(limit) < limit:
        raise ConfigError(f"soft_length is {judge.soft(limit)}; it must be less than max_completion_length ({limit})")
    _check_batch(args)
    if judge.eval_data and not judge.eval_pairs:
        raise ConfigError("eval_pairs is 0, but GRPO has no eval loss; set eval_pairs, or remove eval_data")


def _check_batch(args: Any) -> None:
    prompts = prompts_of_a_generation(args)
    if prompts % 2:
        raise ConfigError(
            f"per_device_train_batch_size {args.per_device_train_batch_size} x gradient_accumulation_steps "
            f"{args.gradient_accumulation_steps} x {args.world_size} processes gives {prompts} prompts with "
            f"{args.num_generations} replies each, but showing pairs in both orders requires an even number of "
            "prompts; double one of these settings"
        )


def grpo_facts(run: TrainingRun) -> dict[str, Any]:
    """Return the training details for the judge's card."""
    judge, args = run.judge, run.args
    names = ("num_generations", "max_completion_length", "temperature", "beta", "scale_rewards", "loss_type")
    return {
        "method": "grpo",
        "reward": "right in both orders",
        "form_weight": judge.form_weight,
        "length_weight": judge.length_weight,
        "soft_length": judge.soft(args.max_completion_length),
        "least_letters": judge.least_letters,
        **{name: getattr(args, name) for name in names},
        "generated_by": "vllm" if args.use_vllm else "transformers",
    }


@dataclass
class JudgeGRPOConfig(PrecisionMixin, GRPOConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `GRPOConfig` with defaults for judges."""

    max_length: int | None = argument("The judge's context window in tokens, including the reply.", default=2048)
    dataset_num_proc: int | None = argument(
        "Number of processes for building the rows. Default: one per core.", default=None
    )
    use_vllm: bool | None = argument(  # type: ignore[assignment]  # None until __post_init__
        "Generate with vLLM. Default: true on a GPU if the installed vLLM version is supported by TRL.", default=None
    )
    scale_rewards: str = argument(
        "Use batch or none. group would scale the rewards of each order separately.", default="batch"
    )
    shuffle_dataset: bool | None = argument(
        "Leave this off, because pairs are already shuffled using the seed.", default=False
    )

    def __post_init__(self) -> None:
        """Choose the generation backend, and set an eval batch size that TRL accepts."""
        self.per_device_eval_batch_size = self.num_generations or self.per_device_eval_batch_size
        super().__post_init__()
        if self.use_vllm is None:
            self.use_vllm = self.device.type == "cuda" and vllm_fault(installed_vllm()) is None


def installed_vllm() -> str | None:
    """Return the installed version of vLLM, including CPU builds."""
    distributions = packages_distributions().get("vllm", [])
    return version(distributions[0]) if distributions else None


def vllm_fault(installed: str | None) -> str | None:
    """Return the reason TRL does not support this vLLM version, or None."""
    [supported] = [each.specifier for each in extra_requirements("vllm", "trl") if each.name == "vllm"]
    if installed is not None and supported.contains(installed, prereleases=True):
        return None
    state = "is not installed" if installed is None else f"{installed} is installed"
    needed = f"TRL {version('trl')} requires {supported}"
    return f"vllm {state}, but {needed}; run pip install 'vllm{supported}' or set use_vllm to false"
