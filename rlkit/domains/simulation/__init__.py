"""Simulation: predicting what a program prints or needs (tasks.py, scoring.py)."""
