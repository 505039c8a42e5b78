#!/usr/bin/env bash
# A judge as verl's reward: serve it, then name judgelm's function in verl's configuration.
#   judgelm serve small-judge --port 8000
#   examples/rewards/verl.sh data.train_files=train.parquet actor_rollout_ref.model.path=MODEL ...
# Rows need `extra_info.question` and the reference answer as `reward_model.ground_truth`. judgelm must be installed in
# verl's environment. verl's reward loop is tested with this function (`make conformance`), a whole verl training is not.
exec python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    reward.custom_reward_function.path=pkg://judgelm.rewards.verl \
    reward.custom_reward_function.name=compute_score \
    +reward.custom_reward_function.reward_kwargs.model=small-judge \
    +reward.custom_reward_function.reward_kwargs.engine=openai \
    +reward.custom_reward_function.reward_kwargs.engine_args.base_url=http://localhost:8000/v1 \
    "$@"
