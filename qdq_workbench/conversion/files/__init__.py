"""Models and integers read from files and written to them."""
