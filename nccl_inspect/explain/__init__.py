"""Single lines: what they mean, which rule they lead to, what to do first."""
