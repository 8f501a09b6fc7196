"""Conversion: quantize, strip, retarget and fold models, read their integers, load and save them."""
