"""`pytest tests/properties/test_fuzz_specs.py --fuzz 10000`: more mutations, new ones each time."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, help="Mutated specs to try; without it 300, the same each time.")
