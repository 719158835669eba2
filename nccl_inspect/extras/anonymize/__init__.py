"""Logs, and the evidence beside them, without names: hosts, pods, users, addresses, paths, tokens are replaced.

Always by the same: ``anonymizer`` learns names from all files before one is written. Logs are read as every command
reads them; of evidence (``evidence``) each kind states what its keys name. In the end
``text.find_leaks`` looks for what is left.
"""

from nccl_inspect.extras.anonymize.anonymizer import Anonymizer

__all__ = ["Anonymizer"]
