"""Which runtime and precision runs a model: possible, tried, compared, warmed."""
