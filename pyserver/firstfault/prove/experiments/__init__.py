"""The A/B diagnostic on a probe: one window at once (A), in micro-batches (B), and the objective itself (C).

``prove(setting)`` starts the experiment in the user's interpreter and judges what it measured; ``Refused`` says in one
sentence why there is no answer. Values in between: ``verdict`` reads no file and starts nothing.
"""

from firstfault.prove.experiments.process import Refused, Setting, experiment
from firstfault.prove.experiments.verdict import Verdict, judge

__all__ = ["Refused", "Setting", "Verdict", "prove"]


def prove(setting: Setting) -> Verdict:
    measured, ranked = experiment(setting)
    return judge(measured, ranked)
