"""What processes, launchers and tools state: settings, errors, how the job ended."""
