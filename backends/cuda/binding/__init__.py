"""Where tensors lie on the device, and the list of launches that a section becomes."""
