"""JSON, forms and files to records; results to JSON."""
