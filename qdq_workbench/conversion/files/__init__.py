"""Reading and writing of models and integer weights."""
