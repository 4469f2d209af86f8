"""Running a real training step and laying it beside the prediction."""
