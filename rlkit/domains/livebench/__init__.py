"""LiveBench (White et al., arXiv 2406.19314): reasoning, language and data analysis."""
