"""Measuring an engine: acceptance, speed and expert overlap over held-out prompts. `measure.measure` does it all."""
