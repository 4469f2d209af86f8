"""Time: one clock per stream over a script's events."""
