"""Studies: a file of parameters becomes runs, each trained through a notebook, and an analysis."""
