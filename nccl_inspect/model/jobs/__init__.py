"""The jobs of one input told apart."""
