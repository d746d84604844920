"""Science: quantities with units, multiple choice, short text."""
