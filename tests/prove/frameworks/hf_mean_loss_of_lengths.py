"""A compute_loss that returns a mean, over sentences of different lengths: two faults at once."""

import torch.nn.functional as F
from trainer import trainer
from transformers import Trainer


class Mean(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return (loss, outputs) if return_outputs else loss


trainer(Mean).train()
