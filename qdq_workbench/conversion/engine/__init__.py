"""The conversion engine: rebuild, wrap, fold, cut, strip and retarget a model."""
