"""Trains a small tagger: one label for each token, sentences of different lengths, gradient accumulation.

It runs on the CPU in a few seconds and raises no error. Two of its lines are wrong all the same; `firstfault check`
finds them:

    firstfault check examples/train.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

VOCABULARY = 200
TAGS = 12
ACCUMULATION_STEPS = 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.features = nn.Sequential(
            nn.Conv1d(32, 64, kernel_size=3, padding=1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
        )
        self.head = nn.Linear(64, TAGS)

    def forward(self, tokens):
        features = self.features(self.embedding(tokens).transpose(1, 2))
        return self.head(features.transpose(1, 2))


def make_sentences(count):
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(3, 60, (count,), generator=generator)
    return [torch.randint(1, VOCABULARY, (int(length),), generator=generator) for length in lengths]


def collate(sentences):
    tokens = pad_sequence(sentences, batch_first=True, padding_value=0)
    labels = pad_sequence([tokens % TAGS for tokens in sentences], batch_first=True, padding_value=-100)
    return tokens, labels


def main():
    torch.manual_seed(7)
    loader = DataLoader(make_sentences(320), batch_size=4, shuffle=True, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    assert len(loader) % ACCUMULATION_STEPS == 0
    model.train()
    for epoch in range(2):
        optimizer.zero_grad()
        for step, (tokens, labels) in enumerate(loader):
            logits = model(tokens)
            loss = F.cross_entropy(logits.reshape(-1, TAGS), labels.reshape(-1), ignore_index=-100)
            loss = loss / ACCUMULATION_STEPS
            loss.backward()
            if (step + 1) % ACCUMULATION_STEPS == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item() * ACCUMULATION_STEPS:.3f}")


if __name__ == "__main__":
    main()
