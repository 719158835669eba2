"""Opens what the user names and hands out blocks of whole lines."""
