"""Grids: the Abstraction and Reasoning Corpus and its relatives."""
