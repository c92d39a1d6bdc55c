"""``prove(setting)``: an experiment is started in the user's interpreter, and what it measured is judged.

``Refused`` says in one sentence why there is no answer.
"""

from firstfault.prove.experiments.process import Refused, Setting, experiment
from firstfault.prove.experiments.verdict import Verdict, judge

__all__ = ["Refused", "Setting", "Verdict", "prove"]


def prove(setting: Setting) -> Verdict:
    measured, ranked = experiment(setting)
    return judge(measured, ranked)
