"""The backend `Remote`: a model of another server that speaks the Open Inference Protocol."""
