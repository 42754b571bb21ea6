"""The commands of `cluster-serving`, one group a file. What they need is imported when they run: `--help` must be quick."""
