"""Builds the trainer that has a judge prefer one judgment to another: direct preference optimisation (DPO).

What a judge learned by fine-tuning stays its reference: DPO raises the log-probability of the chosen judgment against
the rejected one, each measured from where that judge had it. Rows, safeguards and evaluations are those of
`judgelm.training.sft`; the loss is TRL's.

Source: Rafailov et al. 2023, Direct Preference Optimization (arXiv 2305.18290).
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    DPOConfig,
    DPOTrainer,
    ModelConfig,
)

from judgelm.errors import CardError, ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card
from judgelm.training.base_model import base_name
from judgelm.training.config import JudgeArguments
from judgelm.training.nan_guard import NanGuard
from judgelm.training.precision import JudgeDPOConfig
from judgelm.training.preference_pairs import JudgmentPairBuilder, JudgmentPairOptions
from judgelm.training.resume import refuse_finished
from judgelm.training.save_dtype import SavesInDtype
from judgelm.training.schedule import file_sha
from judgelm.training.sft import FineTuning, Method, assemble, checked_window, row_options
from judgelm.training.trainer import PassesOnce, check_trainable
from judgelm.training.validation_judging import JudgesWhenEvaluating


@dataclass(kw_only=True)
class DpoArguments(JudgeArguments):
    """What `train/dpo.py` is told beyond TRL's own settings: all that `train/sft.py` is, and the judge's mistakes.

    `train_data` and `eval_data` hold labelled pairs that `judgments` are about, or rows with `chosen` and `rejected`
    judgments of their own, see `judgelm.training.preference_pairs`.
    """

    judgments: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Judgments of those pairs, as judgelm-batch wrote them (with their .run.json): where the judge was "
            "wrong, the label's judgment is chosen and the judge's own reply rejected."
        },
    )
    min_distance: float | None = field(
        default=None,
        metadata={
            "help": "Reject a reply if a score of it is at least so far from the label's, whoever wins; without it, "
            "if its winner is another."
        },
    )


ARGUMENTS = (DpoArguments, JudgeDPOConfig, ModelConfig)
"""What `train/dpo.py` is told: data and judge, training, base."""


class PreferenceTrainer(JudgesWhenEvaluating, NanGuard, SavesInDtype, PassesOnce, DPOTrainer):
    """A `DPOTrainer` for rows that are tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """The rows as they are.

        TRL would make them from texts: with an end-of-sequence token behind a bare score line, and without what the
        length policy does for the prompt.
        """
        return dataset


def prepare_preference(judge: DpoArguments, dpo: DPOConfig, model: ModelConfig) -> FineTuning:
    """Load the judge to be tuned, make the rows, build the trainer.

    Raises:
        CardError: the judge's card contradicts the template or the scale.
        ConfigError: an option that does not exist or does not apply, or another batch than `global_batch` states.
        InputError: a data file that cannot be used.
        ModelError: the judge cannot be loaded.
        RunError: the output folder holds a finished judge, or another run's checkpoints.
    """
    refuse_finished(Path(str(dpo.output_dir)), overwrite=judge.overwrite_output_dir)
    window = checked_window(judge, dpo)
    _check(judge, dpo)
    before = _card_of(model, judge)
    options = JudgmentPairOptions(
        **asdict(row_options(judge, window=window, seed=dpo.seed)),
        judgments=tuple(judge.judgments),
        min_distance=judge.min_distance,
    )
    method = Method(
        options=options, make_rows=JudgmentPairBuilder, make_trainer=PreferenceTrainer, beside=judge.judgments
    )
    done = assemble(judge, dpo, model, method)
    facts = {
        "method": "dpo",
        "beta": dpo.beta,
        "loss_type": dpo.loss_type,
        "judgments": [{"file": Path(path).name, "sha": file_sha(path)} for path in judge.judgments],
        "min_distance": judge.min_distance,
        "began_from": {"judge": base_name(model), **(before.training if before else {})},
    }
    return replace(done, facts=facts, began_from=before)


def _check(judge: DpoArguments, dpo: DPOConfig) -> None:
    """Refuse what a supervised fine-tuning has and this has not."""
    for name, only in (("loss_on", "completion"), ("score_weight", 1.0)):
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, but DPO compares whole judgments; leave {name} out")
    check_trainable(judge, dpo)
    if not dpo.beta > 0:
        raise ConfigError(f"beta is {dpo.beta}; it is above 0: the less, the further the judge may move")


def _card_of(model: ModelConfig, judge: DpoArguments) -> Card | None:
    """The card of the judge to be tuned, once it is found to fit; None where it has none."""
    name = base_name(model)
    if (Path(name) / "adapter_config.json").exists():
        raise ConfigError(
            f"{name}: is an adapter; merge it into its base first: python train/merge_lora.py {name} -o ..."
        )
    card = find_card(name, model.model_revision)
    if card is None:
        return None
    if card.template != judge.template:
        raise CardError(
            f"{name}: the judge was trained with template {card.template!r}, but template is {judge.template!r}; set "
            f"template: {card.template}"
        )
    if card.template_sha != get_template(judge.template).sha:
        raise CardError(
            f"{name}: the judge was trained with other bytes of template {card.template!r}; install the judgelm "
            "version it was trained with, or train it again"
        )
    low, high = card.scale
    if [low, high] != judge.scale:
        raise CardError(
            f"{name}: the judge was trained on the scale {low:g} to {high:g}, but scale is {judge.scale}; set scale: "
            f"[{low:g}, {high:g}]"
        )
    return card
