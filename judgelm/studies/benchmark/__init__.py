"""A run of judgments by the metric of the benchmark that it judged, as the benchmark's makers take it."""
