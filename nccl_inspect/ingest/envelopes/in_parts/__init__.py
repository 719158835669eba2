"""Envelopes whose lines may continue in the next one of the same stream, because a collector cuts long ones.

A module here is an envelope as those beside this folder are. It also states ``PARTS``, what lines hold that continue
(:class:`~nccl_inspect.ingest.lines.envelope_fields.Parts`), and says of each line whether it does: by a group
``partial`` of its ``PATTERN``, or by what its ``READ`` states. Samples are a part of a line and its end.

All blocks are searched for such lines, so these modules are loaded with every log.
"""
