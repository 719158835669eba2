"""Fabrics, plugins and interfaces."""
