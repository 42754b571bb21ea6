"""Other model servers with the model of `bench.http`: one program each, run by `bench.http` in an environment of its own."""
