"""The command line `hami`: one module for each command, and what the commands share."""
