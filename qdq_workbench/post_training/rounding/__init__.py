"""Parts of `learn_rounding`: what is reconstructed, what is learned, how, and what is told of it."""
