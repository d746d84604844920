"""Studies: a file of parameters becomes runs, each trained through a notebook, and an analysis.

In: a study's YAML file. Out: folders under outputs/, which rlkit.results reads; the terminal shows the way.
"""
