"""PyG's TGN as a competitor: its memory, time encoding and attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader

from tidegraph import evaluation
from tidegraph.evaluation import SEEDS, Split, metrics
from tidegraph.events.stream import EventStream

IntArray = NDArray[np.int64]

# The settings of PyG's example, without edge features.
BATCH = 200
LEARNING_RATE = 1e-3
WIDTH = 100  # of memory, time encoding and embedding
NEIGHBOURS = 10
SETTINGS: dict[str, Any] = {"batch": BATCH, "learning_rate": LEARNING_RATE}
SETTINGS |= {"width": WIDTH, "neighbours": NEIGHBOURS}


class Tgn(nn.Module):
    """A memory per node, and one layer of attention over the last neighbours."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.memory = TGNMemory(
            nodes,
            1,  # column of a message: the least it accepts, as there are no edge features
            WIDTH,
            WIDTH,
            message_module=IdentityMessage(1, WIDTH, WIDTH),
            aggregator_module=LastAggregator(),
        )
        self.attention = TransformerConv(
            WIDTH, WIDTH // 2, heads=2, dropout=0.1, edge_dim=1 + WIDTH
        )
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


class Replay:
    """Scores events batch by batch with the state before the batch, then applies the batch."""

    def __init__(self, stream: EventStream, split: Split, seed: int) -> None:
        torch.manual_seed(seed)
        self._stream = stream
        self._model = Tgn(stream.nodes)
        self._optimiser = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE)
        self._neighbours = LastNeighborLoader(stream.nodes, size=NEIGHBOURS)
        self._place = torch.empty(stream.nodes, dtype=torch.long)
        # The loader numbers events in the order of insertion.
        inserted = np.concatenate([split.train, split.validation, split.test])
        self._inserted_t = torch.from_numpy(stream.t[inserted].copy())

    def train(self, positions: IntArray, generator: np.random.Generator) -> float:
        """Train one epoch against one random destination per event; return the mean loss."""
        self._model.memory.reset_state()
        self._neighbours.reset_state()
        self._model.train()
        destinations = np.unique(self._stream.dst)
        total, batches = 0.0, 0
        for batch in self._batches(positions):
            drawn = generator.choice(destinations, len(batch))
            positive, negative = self._scores(batch, self._stream.src[batch], drawn)
            loss = nn.functional.binary_cross_entropy_with_logits(
                torch.cat([positive, negative]),
                torch.cat([torch.ones_like(positive), torch.zeros_like(negative)]),
            )
            self._apply(batch)
            self._optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            self._model.memory.detach()
            total, batches = total + float(loss.detach()), batches + 1
        return total / batches

    @torch.no_grad()
    def evaluate(self, positions: IntArray, part: str) -> dict[str, float]:
        """Return AP and AUC of a part; its events are applied after they are scored."""
        self._model.eval()
        sampler = evaluation.negative_sampler("random-dst", self._stream, seed=SEEDS[part])
        found: list[tuple[Tensor, Tensor]] = []
        for batch in self._batches(positions):
            columns = self._stream.src[batch], self._stream.dst[batch], self._stream.t[batch]
            found.append(self._scores(batch, *sampler.sample(*columns)))
            self._apply(batch)
        positive, negative = (torch.cat(scores).numpy() for scores in zip(*found, strict=True))
        return metrics.link_metrics(positive, negative, batch_size=BATCH)

    def _batches(self, positions: IntArray) -> list[IntArray]:
        return [positions[first : first + BATCH] for first in range(0, len(positions), BATCH)]

    def _scores(
        self, batch: IntArray, negative_src: IntArray, negative_dst: IntArray
    ) -> tuple[Tensor, Tensor]:
        src, dst = self._stream.src[batch], self._stream.dst[batch]
        pairs = [torch.from_numpy(ids.copy()) for ids in (src, dst, negative_src, negative_dst)]
        nodes, edges, event = self._neighbours(torch.unique(torch.cat(pairs)))
        self._place[nodes] = torch.arange(len(nodes))
        state, updated = self._model.memory(nodes)
        gap = (updated[edges[0]] - self._inserted_t[event]).to(state.dtype)
        message = torch.zeros(len(event), 1)
        about = torch.cat([self._model.memory.time_enc(gap), message], dim=1)
        z = self._model.attention(state, edges, about)
        ends = [z[self._place[ids]] for ids in pairs]
        return (
            self._model.head(torch.cat(ends[:2], dim=1)).squeeze(1),
            self._model.head(torch.cat(ends[2:], dim=1)).squeeze(1),
        )

    def _apply(self, batch: IntArray) -> None:
        columns = (self._stream.src, self._stream.dst, self._stream.t)
        src, dst, t = (torch.from_numpy(column[batch].copy()) for column in columns)
        self._model.memory.update_state(src, dst, t, torch.zeros(len(batch), 1))
        self._neighbours.insert(src, dst)
