"""Judges: each module reads ``Measured`` and yields verdicts on the codes it knows. See ``prove/verdict.py``."""
