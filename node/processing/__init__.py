"""Processing of a record's values before and after the model: model inputs, images, text, `topN`, the user's own code."""
