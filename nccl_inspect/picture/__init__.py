"""What there is to draw of a communicator, and how its links look: shared by drawings and by the HTML report."""
