"""cuBLAS, cuDNN and our own kernels as they are called, and how tensors lie for them."""
