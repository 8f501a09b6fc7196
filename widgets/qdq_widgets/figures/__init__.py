"""Figures: pure functions from an artefact of the bench to a plotly figure."""
