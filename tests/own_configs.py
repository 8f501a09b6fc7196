"""A user's own `QuantizeConfig` of the predecessor's six methods, for tests that need one of the kernel alone."""

import qdq_workbench as qdq


class KernelConfig(qdq.QuantizeConfig):
    """Quantizes `kernel` and nothing else; a subclass says by what."""

    def kernel_quantizer(self):
        raise AssertionError("a subclass makes the quantizer")

    def get_weights_and_quantizers(self, layer):
        return [(layer.kernel, self.kernel_quantizer())]

    def get_activations_and_quantizers(self, layer):
        return []

    def set_quantize_weights(self, layer, quantize_weights):
        layer.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        pass

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


class FourBits(KernelConfig):
    """Four bits with a scale per output channel."""

    def kernel_quantizer(self):
        return qdq.LastValueQuantizer(num_bits=4, per_axis=True, narrow_range=True)
