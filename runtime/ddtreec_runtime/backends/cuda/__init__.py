"""The CUDA backend: cubins of a bundle bound to device memory, launched or replayed as graphs.

Imported only when a bundle for CUDA is opened on a machine that has a GPU.
"""
