"""The CUDA C++ of our own kernels."""
