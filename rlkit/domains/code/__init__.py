"""Code: programs judged by tests."""
