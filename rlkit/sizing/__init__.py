"""What fits a device and how long it takes, from shapes alone: no weights are built; training does not import it."""
