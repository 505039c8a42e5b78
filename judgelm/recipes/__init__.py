"""A list of commands from a YAML file, run one after another and resumed step by step."""
