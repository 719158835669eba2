"""What messages become: typed events, and the tables and files that events are written to."""
