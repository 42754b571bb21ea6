"""Shadow: a share of the live records run in float32 too, beside the node, to see whether the served answers still agree."""
