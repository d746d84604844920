"""Tables: questions about tabular data."""
