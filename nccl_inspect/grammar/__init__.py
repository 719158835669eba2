"""What NCCL and its plugins print, as data: every message shape, what it means and the event it becomes."""
