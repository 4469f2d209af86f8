"""The files that people already have: trainers' own configurations, read and written."""
