"""The notebook front end of QDQ Workbench: Jupyter widgets on the public names of `qdq_workbench`."""
