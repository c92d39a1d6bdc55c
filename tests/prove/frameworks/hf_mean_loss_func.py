"""A loss function of one's own that ignores the number of targets it is given."""

import torch.nn.functional as F
from trainer import trainer


def loss_of(outputs, labels, num_items_in_batch=None):
    return F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


trainer(lengths=[8] * 32, compute_loss_func=loss_of).train()
