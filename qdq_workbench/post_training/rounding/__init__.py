"""The implementation of `learn_rounding` and `gptq_weights`."""
