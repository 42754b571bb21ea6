"""Commands of `cluster-serving`, one group a file. A command imports its packages when it runs: `--help` must be quick."""
