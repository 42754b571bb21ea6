"""Choice of the engine and precision that run a model: list the possible runtimes, try and compare them, warm up the winner."""
