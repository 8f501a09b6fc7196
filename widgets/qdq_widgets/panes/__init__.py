"""The panes of the bench: one per file, none knows another."""
