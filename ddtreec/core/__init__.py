"""Errors, ids, digests, dtypes and paths: the words every other room uses."""
