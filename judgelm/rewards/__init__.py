"""A judge as reward function: for TRL (`judgelm.rewards.trl`) and verl (`judgelm.rewards.verl`)."""
