"""Siblings must agree: hosts, ranks and communicators of one job, compared with their like."""
