"""A mosec server of embeddings: a worker that runs each request, as mosec's embedding example, which joins none."""

from __future__ import annotations

import os
from typing import Any

from mosec import Server, Worker
from sentence_transformers import SentenceTransformer

FOLDER = os.environ["BENCH_MODEL"]


class Embedding(Worker):
    """Answers {"input": text} with the shape of /v1/embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.model = SentenceTransformer(FOLDER, device="cpu", local_files_only=True)

    def forward(self, data: Any) -> Any:
        given = data["input"]
        vectors = self.model.encode([given] if isinstance(given, str) else given, show_progress_bar=False)
        return {"data": [{"index": i, "embedding": vector.tolist()} for i, vector in enumerate(vectors)]}


if __name__ == "__main__":
    server = Server()
    server.append_worker(Embedding, num=1, route="/v1/embeddings")
    server.run()
