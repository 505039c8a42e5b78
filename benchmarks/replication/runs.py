"""One run of the replication: a base that reads, or a judge that is fine-tuned and then judges the held-out pairs.

Everything is done by the parts that users use: the trainer of `train/sft.py`, the engine and the runner of
`judgelm-batch`.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
from transformers import AutoTokenizer
from trl import ModelConfig, SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from benchmarks.replication.data import documents, write_training
from benchmarks.replication.plan import Base, Plan, Run, Shown
from benchmarks.tiny_model import make_base
from judgelm.data.labelled_pair import LabelledPair
from judgelm.data.labelled_set import read_labelled
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.modes import Pairwise
from judgelm.runs.runner import judge
from judgelm.studies.pair_labels import orders_of
from judgelm.training.arguments import JudgeArguments, check_arguments, row_options
from judgelm.training.base_model import load_base_model, load_tokenizer
from judgelm.training.finished_judge import save_judge
from judgelm.training.rows.dataset import build_rows
from judgelm.training.rows.sft import SFTRowBuilder
from judgelm.training.sft import JudgeTrainer

TEMPLATE = "judgelm-compact"
WINDOW = 512
_VOCABULARY = 1280
_TOKENIZER_DOCUMENTS = 5_000

_SYMBOLS = {1: "1", 0: "=", -1: "2", None: "x"}
_LABELS = {symbol: label for label, symbol in _SYMBOLS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One judge's verdicts on every held-out pair, in the file's order.

    Attributes:
        given: +1 first better, 0 tie, -1 second better; None where the reply could not be read.
        swapped: the same pairs shown in reverse, put back in the file's order.
    """

    given: tuple[int | None, ...]
    swapped: tuple[int | None, ...]

    def to_json(self) -> list[str]:
        """One character a pair: `1`, `2`, `=` or `x` for a failure."""
        return ["".join(_SYMBOLS[label] for label in labels) for labels in (self.given, self.swapped)]

    @classmethod
    def from_json(cls, texts: Sequence[str]) -> "Outcome":
        """The inverse of `to_json`."""
        given, swapped = (tuple(_LABELS[symbol] for symbol in text) for text in texts)
        return cls(given=given, swapped=swapped)


def pretrain(base: Base, plan: Plan, folder: Path, *, seed: int = 0) -> None:
    """Make a base model and let it read; the folder appears when it is done."""
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    make_base(
        documents(min(plan.documents, _TOKENIZER_DOCUMENTS)), making / "untrained", hidden_size=base.hidden_size,
        layers=base.layers, heads=base.heads, vocab_size=_VOCABULARY, max_positions=WINDOW, seed=seed,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(making / "untrained")
    ids = tokenizer(list(documents(plan.documents)), add_special_tokens=False)["input_ids"]
    settings = _settings(making / "checkpoints", base.learning_rate, batch=2 * plan.batch, epochs=1, seed=seed)
    settings.max_length = None
    trainer = SFTTrainer(
        model=str(making / "untrained"),
        args=settings,
        train_dataset=datasets.Dataset.from_dict({"input_ids": ids, "labels": ids}),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(making))
    making.rename(folder)


def fine_tune(run: Run, plan: Plan, base: Path, folder: Path) -> None:
    """Fine-tune one judge."""
    data = folder.with_name(f"{folder.name}.jsonl")
    write_training(run, data)
    rate = next(base.learning_rate for base in plan.bases if base.name == run.base)
    arguments = JudgeArguments(
        train_data=[str(data)],
        template=TEMPLATE,
        swap_prob=0.5 if run.swap else 0.0,
        reference_drop_prob={"never": 1.0, "always": 0.0, "drop": 0.5}[run.reference],
        reason_prob=0.0,
    )
    config = ModelConfig(model_name_or_path=str(base))
    settings = _settings(folder, rate, batch=plan.batch, epochs=plan.epochs, seed=run.seed)
    check_arguments(arguments, settings)
    tokenizer = load_tokenizer(config, trust_remote_code=False)
    rows, _ = build_rows(tokenizer, SFTRowBuilder, row_options(arguments, settings), arguments, settings)
    model = load_base_model(config, settings)
    trainer = JudgeTrainer(model=model, args=settings, rows=rows, processing_class=tokenizer)
    trainer.train()
    save_judge(trainer, arguments, config)
    data.unlink()


def test(folder: Path, pairs: Sequence[LabelledPair], shown: Shown) -> Outcome:
    """Have a judge judge the held-out pairs in both orders."""
    engine = load_engine("transformers", EngineOptions(model=str(folder), dtype="float32", max_model_len=WINDOW))
    mode = Pairwise(template=TEMPLATE, both_orders=True, reference="use" if shown == "with" else "ignore")
    try:
        orders_by_id = {
            judgment.sample_id: orders_of(judgment) for judgment in judge([pair.sample for pair in pairs], mode, engine)
        }
    finally:
        engine.close()
    orders = [orders_by_id[pair.sample.id] for pair in pairs]
    return Outcome(
        given=tuple(None if two is None else two.given.label for two in orders),
        swapped=tuple(None if two is None or two.swapped is None else two.swapped.label for two in orders),
    )


def read_pairs(path: Path) -> list[LabelledPair]:
    """The held-out pairs."""
    return list(read_labelled(str(path), source="test"))


def _settings(folder: Path, rate: float, *, batch: int, epochs: int, seed: int) -> SFTConfig:
    return SFTConfig(
        output_dir=str(folder), learning_rate=rate, per_device_train_batch_size=batch, num_train_epochs=epochs,
        seed=seed, max_length=WINDOW, train_sampling_strategy="group_by_length", adam_beta2=0.98, weight_decay=0.01,
        lr_scheduler_type="cosine", warmup_steps=0.05, use_cpu=True, bf16=False, gradient_checkpointing=False,
        dataloader_pin_memory=False, save_strategy="no", report_to="none", logging_steps=50, disable_tqdm=True,
        loss_type="nll",
    )  # fmt: skip
