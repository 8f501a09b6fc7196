"""Which nodes of a finished graph compute in half precision; `passes/to_half.py` rewrites the graph accordingly."""
