"""What a study shows beyond final scores: along training (`learning`), and between cells (`comparisons`)."""
