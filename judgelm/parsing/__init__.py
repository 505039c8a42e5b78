"""Text that a model wrote -> scores, labels, grades or answers, or why there are none."""
