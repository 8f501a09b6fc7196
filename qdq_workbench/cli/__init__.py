"""The command line: one file per command, all of them thin callers of the public API."""
