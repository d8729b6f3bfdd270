"""torch backends for HAMi on CPU and GPU. Use them by name in a pipeline, for example S[DecodeTensor, SyncTensor]."""

from hami_torch._factories import allow_factory

__all__ = ["allow_factory"]
