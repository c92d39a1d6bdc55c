"""The Trainer as it comes: it hands the number of targets of the window to the model's own loss."""

from trainer import trainer

trainer().train()
