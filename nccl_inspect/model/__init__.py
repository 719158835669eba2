"""Folds events into a job: processes, communicators, the path of each rank pair. Never looks at NCCL versions."""
