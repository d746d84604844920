"""`python -m rlkit` is `rlkit`."""

from rlkit.cli import main

main()
