"""torch on the GPU as HAMi backends; use them by name in a pipeline, as in S[DecodeTensor, SyncTensor]."""

__all__: list[str] = []
