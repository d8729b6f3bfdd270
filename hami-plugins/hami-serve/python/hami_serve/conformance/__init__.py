"""`hami serve-check`: checks whether a server follows the Open Inference Protocol over HTTP."""
