"""What a run leaves behind: the only writer (store) and the only readers (read, progress) of outputs/.

In: a RunConfig, metrics and graded samples of a run. Out: tidy tables, a run's state, labels that tell runs apart.
"""
