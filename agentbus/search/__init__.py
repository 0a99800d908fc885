"""Search: an exact answer from the State and the texts, made quick by an index that may be deleted at any time."""
