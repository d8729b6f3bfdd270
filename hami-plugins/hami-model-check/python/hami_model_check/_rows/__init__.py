"""The proof of row independence: what prove_rows consists of. Private."""
