"""A record's values before and after the model: one input, images, text, topN, the user's own code."""
