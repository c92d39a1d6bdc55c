import torch.nn.functional as F
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
model = language_model()
optimizer = SGD(model.parameters(), lr=0.1)
for i, (ids, labels) in enumerate(text()):
    mask = (labels != -100).float()
    each = F.cross_entropy(model(ids).transpose(1, 2), labels.clamp(min=0), reduction="none")
    loss = (each * mask).sum() / mask.sum()
    (loss / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
