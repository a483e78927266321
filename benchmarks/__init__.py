"""Measurements. Each script prints ratios taken in one run and writes JSON to `benchmarks/results/`."""
