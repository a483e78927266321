"""GPU tests run where a CUDA device is. Bundles come ready-made from .gpu/payload (see payload.py) or are compiled."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a GPU: marked so, and skipped without one."""
    for item in items:
        if "tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
