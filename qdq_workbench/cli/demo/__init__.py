"""`qdq-workbench demo`: the whole workflow, from images to verified INT8 files and a report."""
