"""`pytest tests/messages --rewrite-messages` writes the texts anew; the diff is the review."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-messages", action="store_true", help="Write tests/messages/texts anew.")
