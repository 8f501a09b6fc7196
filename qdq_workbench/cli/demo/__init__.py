"""`qdq-workbench demo`: the whole path, from images to verified INT8 files and a report."""
