"""Mathematics: generated problems, and whether an answer equals the truth.

In: a seed, or a response with the truth. Out: tasks (tasks.py), or a verdict: text to forms (forms.py, parse.py),
compared part by part (compare.py): expressions (equal_expressions.py), amounts with units (units.py).
"""
