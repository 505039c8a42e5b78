"""The trainer of `train/grpo.py`: reinforcement of judges that reason first, by GRPO.

Each pair is shown in both orders, and several replies are drawn to each prompt. `judgelm.training.verdict_reward`
states the reward; a reply's advantage is its reward less the mean over the replies to its prompt. Loss, generation and
vLLM are TRL's.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), for GRPO; J1 and RM-R1 for judges.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import Trainer
from transformers.trainer_utils import EvalLoopOutput
from trl import GRPOTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.errors import ConfigError
from judgelm.modes.pairwise import reasoned_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Unparsed
from judgelm.training.arguments import row_options
from judgelm.training.config import JudgeArguments
from judgelm.training.nan_guard import NanGuardMixin
from judgelm.training.precision import installed_vllm, vllm_fault
from judgelm.training.rows.builder import FastTokenizer
from judgelm.training.rows.dataset import EpochRows
from judgelm.training.rows.judging_prompts import JudgingPromptOptions, in_both_orders
from judgelm.training.save import SaveDtypeMixin
from judgelm.training.schedule import SinglePassMixin
from judgelm.training.validation.evaluator import ValidationMixin
from judgelm.training.verdict_reward import Attempt, both_orders_right, length_penalty, read_form

_SOFT_SHARE = 0.75


@dataclass(kw_only=True)
class GRPOArguments(JudgeArguments):
    """Arguments of `train/grpo.py` beside TRL's: data, template, and the weights of the reward.

    `train_data` and `eval_data` hold pairs with a `preference`, scores or a winner; ties are left out.
    """

    template: str = field(
        default="reasoned-chat",
        metadata={"help": "Prompt template that reasons first: reasoned-chat or reasoned-compact."},
    )
    swap_prob: float = field(default=0.0, metadata={"help": "Has no effect: each pair is shown in both orders."})
    form_weight: float = field(
        default=0.2,
        metadata={"help": "Price of a reply without an end, without a verdict, or without reasons."},
    )
    length_weight: float = field(
        default=0.1, metadata={"help": "Price of a reply that is as long as max_completion_length."}
    )
    soft_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a reply up to which length costs nothing; without it three quarters of "
            "max_completion_length."
        },
    )
    least_letters: int = field(default=20, metadata={"help": "Letters that reasons have at least before the verdict."})

    def soft(self, limit: int) -> int:
        """The soft limit of a reply, in tokens."""
        return int(limit * _SOFT_SHARE) if self.soft_length is None else self.soft_length


class VerdictRewards:
    """The parts of the reward as TRL's reward functions, whose names are those of the logged means.

    Args:
        judge: the limits of form and length.
        limit: the most tokens of a reply.
        eos_ids: tokens that end a reply.
    """

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
        """See `judgelm.training.verdict_reward`; the replies in the other order may lie on other processes."""
        own = []
        for text, ids, pair_number, shown, better in zip(completions, completion_ids, pair, order, best, strict=True):
            verdict = self._read(text, ids)
            right = not isinstance(verdict, Unparsed) and verdict.better == better
            own.append(Attempt(int(pair_number), int(shown), right))
        attempts = [Attempt(*each) for each in gather_object(own)]
        begin = PartialState().process_index * len(own)  # each process has equally many
        return both_orders_right(attempts)[begin : begin + len(own)]

    def form(self, completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        """0 for a well-formed reply, else -1."""
        replies = zip(completions, completion_ids, strict=True)
        return [-1.0 if isinstance(self._read(text, ids), Unparsed) else 0.0 for text, ids in replies]

    def length(self, completion_ids: list[list[int]], **_: Any) -> list[float]:
        """0 to -1, beyond the soft limit."""
        soft = self._judge.soft(self._limit)
        return [length_penalty(len(ids), soft=soft, limit=self._limit) for ids in completion_ids]

    def _read(self, text: str, ids: list[int]) -> Any:
        ended = bool(ids) and ids[-1] in self.eos_ids
        return read_form(text, ended=ended, least_letters=self._judge.least_letters)


class _RewardedVerdicts(GRPOTrainer):
    """A `GRPOTrainer` on prompts that stand as the judge reads them, special tokens of a chat included."""

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
        """Token ids as an engine makes them; TRL would add a chat's first token a second time."""
        return [self._truncator.encode(prompt, chat=self._chat) for prompt in prompts], None, {}


class _JudgedEvaluations(Trainer):
    """Placed before a trainer's class: an evaluation judges pairs and computes no loss."""

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        """Return no metrics, to which `ValidationMixin` adds those of the judging."""
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics={}, num_samples=1)


class VerdictTrainer(
    ValidationMixin, NanGuardMixin, SaveDtypeMixin, SinglePassMixin, _JudgedEvaluations, _RewardedVerdicts
):
    """The trainer of judges that reason first.

    Args:
        options: `judge` (`GRPOArguments`), `window` (tokens of prompt and reply), `rows` (`EpochRows` in both orders),
            `validation`, `patience`, and what `GRPOTrainer` takes.
    """


def prompt_options(judge: GRPOArguments, args: Any) -> JudgingPromptOptions:
    """Options of the rows; `max_length` of the trainer's arguments is their window."""
    return JudgingPromptOptions(**asdict(row_options(judge, args)), reply_tokens=args.max_completion_length)


def prompts_of_a_generation(args: Any) -> int:
    """Prompts to which replies are drawn at once, over all processes."""
    return int(args.generation_batch_size) // int(args.num_generations)


def paired_prompts(rows: EpochRows, args: Any) -> EpochRows:
    """The rows as prompts in both orders, as many as fill whole generations.

    Raises:
        ConfigError: there are fewer pairs than a generation needs.
    """
    step = prompts_of_a_generation(args)
    paired = in_both_orders(rows, step=step)
    if not len(paired.dataset):
        raise ConfigError(
            f"the training data have {len(rows.dataset)} pairs, and replies are drawn to {step // 2} at once; give "
            "more pairs, or a smaller gradient_accumulation_steps or per_device_train_batch_size"
        )
    return paired


def check_grpo_arguments(judge: GRPOArguments, args: Any) -> None:
    """Check the arguments of the reinforcement against each other.

    Raises:
        ConfigError: they do not fit, the template begins with scores, both orders of a pair could be torn apart, or TRL
            does not support the installed vLLM.
    """
    reasoned_template(judge.template)
    if args.use_vllm and (fault := vllm_fault(installed_vllm())) is not None:
        raise ConfigError(f"use_vllm is set, but {fault}")
    defaults = {"loss_on": "completion", "score_weight": 1.0, "reason_prob": 1.0, "global_batch": None}
    for name, only in defaults.items():
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, which has no meaning for GRPO; leave {name} out")
    for name, reason in (
        ("reward_weights", "the weights of the reward are form_weight and length_weight"),
        ("vllm_structured_outputs_regex", "form is learned by its price"),
    ):
        if getattr(args, name) is not None:
            raise ConfigError(f"{name} is set, but {reason}; leave {name} out")
    if args.num_iterations != 1:
        raise ConfigError(f"num_iterations is {args.num_iterations}; replies are used once here, so leave it out")
    if args.train_sampling_strategy != "random":
        raise ConfigError("train_sampling_strategy is set, but pairs stand in random order; leave it out")
    for name in ("form_weight", "length_weight", "least_letters"):
        if not 0 <= getattr(judge, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(judge, name)}; it is a number of 0 or more")
    limit = args.max_completion_length
    if not limit or args.max_length is None or limit >= args.max_length:
        raise ConfigError(
            f"max_completion_length is {limit} and max_length {args.max_length}; the reply must leave room for the "
            "prompt in the judge's window (max_length)"
        )
    if not 0 <= judge.soft(limit) < limit:
        raise ConfigError(f"soft_length is {judge.soft(limit)}; it is less than max_completion_length ({limit})")
    _check_batch(args)
    if judge.eval_data and not judge.eval_pairs:
        raise ConfigError("eval_pairs is 0, but an evaluation judges pairs and has no loss; leave eval_data out too")


def _check_batch(args: Any) -> None:
    """See that both orders of each pair lie in one generation."""
    prompts = prompts_of_a_generation(args)
    if prompts % 2:
        raise ConfigError(
            f"per_device_train_batch_size {args.per_device_train_batch_size} x gradient_accumulation_steps "
            f"{args.gradient_accumulation_steps} x {args.world_size} processes make {args.generation_batch_size} "
            f"replies, {args.num_generations} to each of {prompts} prompts; both orders of a pair need an even number "
            "of prompts, so double one of them"
        )


def grpo_facts(judge: GRPOArguments, args: Any) -> dict[str, Any]:
    """Facts of the training, for the judge's card."""
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
