"""Published benchmarks of judges and of models, read in the shapes in which their makers publish them."""
