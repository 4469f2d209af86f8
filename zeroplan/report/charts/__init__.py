"""Charts: for each kind its data with the finding in words, and a function that draws it."""
