"""How long a collective takes on a link."""
