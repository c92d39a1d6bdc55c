"""Random numbers everywhere: the order of the data, two workers, dropout, noise on the inputs; half precision."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
data = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
model = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for _ in range(2):
    for number, (inputs, labels) in enumerate(DataLoader(data, batch_size=4, shuffle=True, num_workers=2)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(inputs + 0.1 * torch.randn_like(inputs))
            loss = F.cross_entropy(scores, labels, label_smoothing=0.1)
        (loss / 4).backward()
        if number % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
