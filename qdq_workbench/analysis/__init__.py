"""What quantization costs a model, layer by layer: metrics, sensitivity sweeps, searches, the cost of layers."""
