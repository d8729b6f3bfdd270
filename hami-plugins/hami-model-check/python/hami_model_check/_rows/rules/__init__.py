"""The rules of operators: how each moves the batch axis. One module for each family."""
