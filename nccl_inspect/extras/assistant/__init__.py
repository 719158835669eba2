"""Serves assistants over the Model Context Protocol.

Nothing here writes, runs or sends anything. Only files below the folders named at the start are read
(:mod:`.reader`); what a log holds is data and marked as such, and no answer is longer than a limit
(:mod:`.server`). The package is imported by the command that serves, and needs the official SDK (the extra ``mcp``).
"""
