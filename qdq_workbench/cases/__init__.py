"""Custom QDQ insertion cases: graph situations that need a special placement, one file per idea."""

from __future__ import annotations

from qdq_workbench.cases.auto import AutoQDQCase
from qdq_workbench.cases.base import CustomQDQInsertionCase, GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.cases.batch_norm import BNQDQCase
from qdq_workbench.cases.concat import ConcatQDQCase
from qdq_workbench.cases.networks import (
    EfficientNetQDQCase,
    InceptionQDQCase,
    MobileNetQDQCase,
    ResNetV1QDQCase,
    ResNetV2QDQCase,
)
from qdq_workbench.cases.pooling import MaxPoolQDQCase
from qdq_workbench.cases.residual import ResidualConnectionQDQCase

__all__ = [
    "AutoQDQCase",
    "BNQDQCase",
    "ConcatQDQCase",
    "CustomQDQInsertionCase",
    "EfficientNetQDQCase",
    "GraphCase",
    "InceptionQDQCase",
    "MaxPoolQDQCase",
    "MobileNetQDQCase",
    "ResNetV1QDQCase",
    "ResNetV2QDQCase",
    "ResidualConnectionQDQCase",
    "check_is_quantizable_by_layer_name",
]
