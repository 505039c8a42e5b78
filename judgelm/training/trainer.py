"""TRL's supervised trainer, as a judge's rows need it."""

from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see


class JudgeTrainer(SFTTrainer):
    """An `SFTTrainer` over the rows of several epochs that lie one behind another.

    Attributes:
        epochs_in_data: how many; the logs' `epoch` counts them rather than passages through the data.
    """

    epochs_in_data: int = 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with `epoch` in passages through the user's files."""
        passed = self.state.epoch
        if passed is not None:
            self.state.epoch = passed * self.epochs_in_data
        super().log(logs, start_time)
        self.state.epoch = passed
