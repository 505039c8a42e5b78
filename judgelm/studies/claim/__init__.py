"""Claims from judgments: the rate at which a model really wins."""
