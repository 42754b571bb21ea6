"""Wire formats: values, tensors, replies, receipts, results, and the original's dialect. No I/O."""
