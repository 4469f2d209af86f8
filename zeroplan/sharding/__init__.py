"""What each strategy divides, by what, in which dtype, padded how."""
