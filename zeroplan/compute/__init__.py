"""How long an operation takes on a GPU."""
