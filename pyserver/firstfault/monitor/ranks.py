"""The windows of all ranks on rank 0, without a collective call: nothing here makes a rank wait for another.

Each rank leaves its window in the key-value store through which the ranks found one another; rank 0 picks up what is
complete when it measures the next one. Where there is no store, or there are very many ranks, each is seen alone.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import torch.distributed as dist

from firstfault.prove.messages import Message

MOST = 64  # ranks whose windows one of them reads
_PATIENCE = datetime.timedelta(seconds=1)  # at the end only, for ranks that are a step behind
_PENDING = 4


class Ranks:
    def __init__(self, session: int) -> None:
        self.prefix = f"firstfault/{session}"
        self.store = _store()
        self.pending: dict[int, Message] = {}  # of rank 0, by the number of the window

    def join(self, message: Message) -> list[list[Message]]:
        """Leave this rank's window; on rank 0, the windows that are now complete."""
        number, rank, world = message["index"], message["rank"], message["world"]
        if rank:
            self.store.set(self._key(number, rank), json.dumps(message))
            self.store.add(self._key(number, 0), 1)
            return []
        found = self.collect(world)
        self.pending[number] = message
        while len(self.pending) > _PENDING:
            self.pending.pop(min(self.pending))
        return found

    def collect(self, world: int, wait: bool = False) -> list[list[Message]]:
        found = []
        for number in sorted(self.pending):
            keys = [self._key(number, rank) for rank in range(1, world)]
            if wait and not self._arrived(keys):
                break
            if self.store.add(self._key(number, 0), 0) < len(keys):  # a read that never waits, in any torch
                continue
            others = [json.loads(self.store.get(key)) for key in keys]
            for key in [*keys, self._key(number, 0)]:
                self.store.delete_key(key)
            found.append([self.pending.pop(number), *others])
        return found

    def _arrived(self, keys: list[str]) -> bool:
        try:
            self.store.wait(keys, _PATIENCE)
        except Exception:  # the time is over, or the store gone with its rank: torch has several classes for it
            return False
        return True

    def _key(self, number: int, rank: int) -> str:
        return f"{self.prefix}/{number}/{rank}"


def joined(session: int, world: int) -> Ranks | None:
    if world < 2 or world > MOST or not (dist.is_available() and dist.is_initialized()):
        return None
    try:
        ranks = Ranks(session)
        ranks.store.add(ranks.prefix, 0)
    except Exception:  # a private function, and a store that need not be able to answer
        return None
    return ranks


def _store() -> Any:
    """A connection of its own where this torch can make one: another thread may wait on the first."""
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store()
    return store.clone() if hasattr(store, "clone") else store
