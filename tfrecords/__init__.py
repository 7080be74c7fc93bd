"""Pre-training records on disk."""
