"""What is asked: models, spec files and their words."""
