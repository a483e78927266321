"""What callers hand over, as numpy arrays of the right kind and number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ArrayLike = Any
"""A numpy array, a torch tensor on any device, or nested sequences."""


def to_numpy(value: ArrayLike) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        # numpy has no bfloat16, and float32 holds every one of its values.
        return (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
    return np.asarray(value)


def _checked(value: ArrayLike, name: str, kind: type[np.generic], axes: int) -> np.ndarray:
    array = to_numpy(value)
    if array.ndim != axes:
        raise ValueError(f"{name} has shape {list(array.shape)}; {axes} axes are needed")
    if not issubclass(array.dtype.type, kind) and array.size:
        raise ValueError(f"{name} is {array.dtype}; {'integers' if kind is np.integer else 'floats'} are needed")
    return array


def matrix(value: ArrayLike, name: str, kind: type[np.generic]) -> np.ndarray:
    return _checked(value, name, kind, 2)


def vector(value: ArrayLike, name: str, kind: type[np.generic]) -> np.ndarray:
    return _checked(value, name, kind, 1)
