"""One self-contained page of HTML that answers a question."""
