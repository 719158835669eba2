"""The drawable parts of a communicator and the look of its links; shared by drawings and the HTML report."""
