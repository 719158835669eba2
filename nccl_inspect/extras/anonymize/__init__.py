"""Logs, and the evidence beside them, without names: hosts, pods, users, addresses, paths, tokens are replaced.

Always by the same: names are learned from all files before one is written. Logs are read as every command reads them;
of evidence each kind states what its keys name. In the end, what is left is looked for.
"""
