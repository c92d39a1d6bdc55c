"""A training step that divides, under a trainer that divides too."""

from lightning_tiny import Model, fit
from tiny import ALIKE, text


class Divided(Model):
    def training_step(self, batch, number):
        return super().training_step(batch, number) / 4


fit(Divided(), text(ALIKE))
