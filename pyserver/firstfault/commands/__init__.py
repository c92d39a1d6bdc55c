"""The commands that are more than a few lines: each module adds its arguments (``add``) and runs."""
