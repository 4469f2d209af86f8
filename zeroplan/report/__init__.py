"""Answers as a person reads them."""
