"""JSON, forms and files to records, and results to JSON."""
