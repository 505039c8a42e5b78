#!/usr/bin/env bash
# A judge as OpenRLHF's remote reward: serve it without API keys, then name its route.
#   judgelm serve small-judge --port 8000
#   examples/rewards/openrlhf.sh --actor.model_name_or_path MODEL --data.prompt_dataset questions.jsonl ...
# The data's field `label` is the reference answer, or a JSON text of `question` and `reference`, which is needed where
# --data.apply_chat_template writes marks into the prompt. A reward model needs no label. The route is tested with the
# requests of OpenRLHF's client (commit 3c3be62); an OpenRLHF training is not.
exec python -m openrlhf.cli.train_ppo_ray \
    --reward.remote_url http://localhost:8000/get_reward \
    --data.input_key question \
    --data.label_key label \
    "$@"
