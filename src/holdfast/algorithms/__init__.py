"""The mathematics of the loop as pure functions: tensors in, tensors out, nothing but torch underneath."""
