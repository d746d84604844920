"""Procedural reasoning tasks of many kinds, through the reasoning-gym package."""
