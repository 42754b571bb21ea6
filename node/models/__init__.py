"""One backend a file, imported only when its kind of model is served."""
