"""Train a model by GRPO with a judge as its reward: TRL.

    python examples/rewards/trl_grpo.py --policy MODEL --judge small-judge --data questions.jsonl -o runs/policy

Each line of the data has a `question` and, for `--method reference`, a `reference` answer. A judge that a server runs:
`--judge NAME --engine openai --base-url http://localhost:8000/v1`. All other options are in `GRPOConfig` below.
"""

import argparse

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from judgelm import Judge
from judgelm.rewards.scoring import METHODS
from judgelm.rewards.trl import JudgeReward


def main() -> None:
    """Load judge and policy, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True, help="folder or hub id of the model to be trained")
    parser.add_argument("--judge", required=True, help="as judgelm-batch --model takes it")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--base-url", help="of the judge's server, with --engine openai")
    parser.add_argument("--data", required=True)
    parser.add_argument("--method", choices=METHODS, default="reference")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=256, help="most tokens of an answer")
    options = parser.parse_args()

    # the judge, in this process or behind a server, as a reward function
    server = {"engine_args": {"base_url": options.base_url}} if options.base_url else {}
    judge = Judge(options.judge, engine=options.engine, **server)
    reward = JudgeReward(judge, options.method)

    # questions; columns other than `prompt` reach the reward function
    data = load_dataset("json", data_files=options.data, split="train")
    data = data.map(lambda row: {"prompt": row["question"]})

    config = GRPOConfig(
        output_dir=options.output,
        max_steps=options.steps,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=options.tokens,
        learning_rate=1e-5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        bf16=False,
    )
    trainer = GRPOTrainer(model=options.policy, reward_funcs=[reward], args=config, train_dataset=data)
    trainer.train()
    trainer.save_model()
    reward.close()
    judge.close()
    for entry in trainer.state.log_history:
        if "reward" in entry:
            print(f"step {entry['step']}: reward {entry['reward']:.3f}, judge failures {entry['judge_failures']:.0%}")


if __name__ == "__main__":
    main()
