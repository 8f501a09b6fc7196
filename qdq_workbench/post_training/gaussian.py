"""Moments of a rectified Gaussian, which predict the output of a ReLU behind a batch normalization.

For z ~ N(b, g^2) and a = b / g, with the standard normal density phi and distribution Phi:

    E[relu(z)]     = g * phi(a) + b * Phi(a)
    E[relu(z)^2]   = (b^2 + g^2) * Phi(a) + b * g * phi(a)

Source: Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction",
arXiv:1906.04721, appendix C.
"""

from __future__ import annotations

import math

import numpy as np


def rectified_moments(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of relu(z) for z normally distributed, each of shape (C,); a deviation may be 0.

    Example:
        >>> mean, variance = rectified_moments(np.array([0.0]), np.array([1.0]))
        >>> round(float(mean[0]), 4), round(float(variance[0]), 4)
        (0.3989, 0.3408)
    """
    certain = deviation <= 0
    spread = np.where(certain, 1.0, deviation)
    place = mean / spread
    density = np.exp(-0.5 * place**2) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(place / math.sqrt(2.0)))
    first = spread * density + mean * below
    second = (mean**2 + spread**2) * below + mean * spread * density
    positive = np.maximum(mean, 0.0)
    first = np.where(certain, positive, first)
    second = np.where(certain, positive**2, second)
    return first, np.maximum(second - first**2, 0.0)
