"""The part of an experiment that runs in the user's interpreter: Python >= 3.9, torch >= 2.1, nothing else."""
