"""A head that takes the number of targets and does not use it: since transformers 5 nobody divides."""

import torch
from trainer import trainer
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = BertForSequenceClassification(BertConfig(vocab_size=30, num_labels=3, **size))
data = [{"input_ids": torch.randint(0, 30, (12,)), "labels": torch.tensor(i % 3)} for i in range(32)]
trainer(model=model, train_dataset=data).train()
