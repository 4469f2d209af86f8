"""Predictions against a table of measured runs."""
