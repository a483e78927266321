"""Tests against stored vectors under tests/data."""
