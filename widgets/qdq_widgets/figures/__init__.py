"""Figures: functions from results of the bench to plotly figures, and their display as widgets."""
