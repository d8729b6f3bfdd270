"""Two pipelines answer the same requests, and their answers are compared."""
