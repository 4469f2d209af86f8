"""Memory: a running sum over a script's events. The peak falls out; no formula for it exists."""
