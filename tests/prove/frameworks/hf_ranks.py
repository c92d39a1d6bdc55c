"""The Trainer on two ranks: the number of targets is that of all ranks."""

from trainer import trainer

trainer().train()
