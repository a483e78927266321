"""Chores of the repository: regenerate what is generated, keep the house."""
