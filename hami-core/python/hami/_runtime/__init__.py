"""The runtime API: pipes, backends, requests, events and tensors. Import it from `hami`."""
