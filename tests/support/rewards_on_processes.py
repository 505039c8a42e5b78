"""One of several processes: gives TRL's reward functions its share of a batch, and writes what they return."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from accelerate import PartialState

from judgelm.errors import RunError
from judgelm.rewards.trl import JudgeReward
from judgelm.training.grpo import GRPOArguments, VerdictRewards
from judgelm.training.process_group import require_shared_disk
from tests.support.known_judge import known_judge


def main():
    asked, folder = json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[2]).parent
    state = PartialState(cpu=True)

    def share(columns):
        size = len(next(iter(columns.values()))) // state.num_processes
        begin = state.process_index * size
        return {name: values[begin : begin + size] for name, values in columns.items()}

    verdicts = VerdictRewards(GRPOArguments(train_data=[], least_letters=0), limit=8, eos_ids=[7])
    groups = JudgeReward(known_judge(), "group")
    rewards = {
        "verdicts": verdicts.both_orders_right(**share(asked["verdicts"])),
        "answers": groups(**share(asked["answers"])),
        "processes": state.num_processes,
        "backend": state.backend,
    }
    require_shared_disk(folder)
    try:
        require_shared_disk(folder if state.is_main_process else folder / "elsewhere")
    except RunError as error:
        rewards["disk"] = str(error)
    (folder / f"{state.process_index}.json").write_text(json.dumps(rewards))
    state.wait_for_everyone()
    state.destroy_process_group()


if __name__ == "__main__":
    main()
