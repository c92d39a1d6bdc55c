"""The A/B diagnostic on a probe: one window at once (A), in micro-batches (B), and the objective itself (C).

``proof.prove(setting)`` is the door. ``worker`` runs in the user's interpreter and loads this package too: nothing is
imported here.
"""
