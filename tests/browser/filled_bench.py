"""A bench that holds results: calibrated, measured, trained, two variants kept, a block closed."""

from __future__ import annotations

from browser.bench_page import BenchPage
from browser.conftest import SCREENSHOTS

CODE = """
import numpy as np
keras.utils.set_random_seed(0)
image = keras.Input((8, 8, 3), name='image')
x = keras.layers.ReLU(name='stem_relu')(keras.layers.Conv2D(4, 3, padding='same', name='stem')(image))
for block in ('one', 'two'):
    y = keras.layers.Conv2D(4, 3, padding='same', name=f'{block}_conv')(x)
    y = keras.layers.BatchNormalization(momentum=0.5, name=f'{block}_norm')(y)
    x = keras.layers.ReLU(name=f'{block}_relu')(keras.layers.Add(name=f'{block}_add')([x, y]))
x = keras.layers.GlobalAveragePooling2D(name='pool')(x)
net = keras.Model(image, keras.layers.Dense(3, activation='softmax', name='head')(x), name='residual')
net.compile(keras.optimizers.Adam(0.01), 'sparse_categorical_crossentropy', metrics=['accuracy'])
labels = np.arange(96) % 3
images = np.random.default_rng(0).normal(labels[:, None, None, None] - 1.0, 2.0, (96, 8, 8, 3)).astype('float32')
net.fit(images, labels, epochs=6, verbose=0, shuffle=False)
wb = Workbench(net, train_data=(images, labels), validation_data=(images, labels), target='onnxruntime')
wb.effects.measuring = False
wb
"""
FILLED = """
keras.utils.set_random_seed(0)
_ = wb.calibrate()
_ = wb.sensitivity(samples=32)
_ = wb.diagnose(samples=32)
_ = wb.keep_variant('all in INT8')
_ = wb.configure('two_conv', 'weight', num_bits=4)
_ = wb.calibrate()
_ = wb.keep_variant('one weight of 4 bits')
_ = wb.fine_tune(3)
wb.select('two_conv')
"""
#: Panes beside each other.
PANES = (("Variants", "Sensitivity"), ("Inspector", "Training"), ("History", "Diagnosis"), ("Inspector", "Values"))


def filled_bench(notebook, index):
    """Show the bench in the place of what a cell shows."""
    notebook.replace_and_run(index, CODE)
    bench = BenchPage(notebook, index, SCREENSHOTS)
    notebook.ask(FILLED)
    bench.root.locator(".qdq-title", has_text="two_conv").first.wait_for()
    bench.root.locator(".qdqw-frametitle", has_text="one").click()
    bench.root.locator(".qdqw-unit.block", has_text="one").wait_for()
    bench.open("Values")
    bench.root.locator("select[multiple]:visible").select_option(label="two_conv/kernel (weight, int4/axis 3)")
    bench.click("Draw")
    bench.root.locator(".qdq-figure:visible .main-svg").first.wait_for()
    return bench
