"""Script that puts a dead letter back into the stream of a job."""

from pathlib import Path

from cluster_serving.client.protocol.resp import Script

REPLAY = Script(Path(__file__).with_name("replay.lua").read_text())
