"""What a run leaves behind: the only writer (store) and the only readers (read, progress) of outputs/."""
