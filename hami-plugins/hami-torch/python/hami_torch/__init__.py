"""torch backends for HAMi on CPU and GPU. Use them by name in a pipeline, for example S[DecodeTensor, SyncTensor]."""

__all__: list[str] = []
