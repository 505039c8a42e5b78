"""Training of readings: `letters` and `yes-no` of an instruct model, with LoRA and with linear probes."""
