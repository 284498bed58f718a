"""Scores sequences with every shared beginning computed once.

Whether a model can do it is found out by ``SharedPrefix.verify``, against a plain forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.models.budget import Budget, is_out_of_memory, release
from harness.models.key_values import Kept, KeyValues, SharedPast
from harness.models.masks import Attention
from harness.models.needed import NeededLogits
from harness.models.packing import Layout, Limits, lay_out, take_batch
from harness.models.prefix_tree import ROOM, SAVING, Piece, Stem, Tree, divide, grow
from harness.models.work import Score, TokenWork, WorkDone

if TYPE_CHECKING:
    import torch

_KEPT_BYTES: Final = {"cpu": 2**28, "cuda": 2**31, "mps": 2**29}

_SHARED_BY: Final = 8
"""Sequences below a stem that is kept for later calls; fewer are the choices of one question."""

Chosen = dict[tuple[int, int], Score]
"""By the tree's number of a token and a target: the target's log-probability behind that token."""


class SharedPrefix:
    """Computes the scores of many sequences as a tree."""

    def __init__(
        self,
        model: Any,
        needed: NeededLogits,
        attention: Attention,
        *,
        vocabulary: int,
        budget: Budget,
        batch: int | None,
        done: WorkDone,
    ) -> None:
        self._model, self._needed, self._attention = model, needed, attention
        self._vocabulary, self._budget, self._batch = vocabulary, budget, batch
        self._done = done
        self._kept = Kept(_KEPT_BYTES.get(model.device.type, _KEPT_BYTES["cpu"]))
        self._room, self._saving = ROOM, SAVING

    def verify(
        self,
        works: Sequence[TokenWork],
        plain: Callable[[Sequence[TokenWork]], list[Score]],
        tolerance: float,
    ) -> str | None:
        """Scores a probe both ways, with stems, branches and gaps forced; None, or what is different."""
        expected = plain(works)
        try:
            self._room, self._saving = 12, 0
            found = self.score(works)
            self._room, self._saving = ROOM, SAVING
            again = self.score(works)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, KeyError) as error:
            if is_out_of_memory(error):
                raise
            return f"the model raised {type(error).__name__}"
        finally:
            self._room, self._saving = ROOM, SAVING
            self._kept.clear()
        apart = max(
            abs(one.logprob - other.logprob)
            for scores in (found, again)
            for one, other in zip(scores, expected, strict=True)
        )
        return None if apart <= tolerance else f"a score is {apart:.2g} off"

    def score(self, works: Sequence[TokenWork]) -> list[Score]:
        """The scores of all sequences, in their order."""
        if not works:
            return []
        sequences = [work.inputs for work in works]
        hints = sorted(self._kept.hints(sequences))
        tree = grow([*sequences, *hints])
        hinted = {tree.ends.pop() for _ in hints}
        pass_ = _Tree(tree, works)
        self._done.distinct += tree.tokens
        root = divide(
            tree,
            room=self._room,
            saving=self._saving,
            most_sequences=self._batch,
            logits=pass_.logits,
            cuts=hinted,
        )
        todo: list[tuple[Stem, KeyValues]] = [(root, KeyValues())]
        while todo:
            stem, past = todo.pop()
            if stem.nodes:
                past = self._grow_stem(pass_, stem, past)
            self._score_pieces(pass_, stem.pieces, past)
            todo += [(below, past) for below in stem.stems]
        return pass_.scores()

    def close(self) -> None:
        """Frees what is kept."""
        self._kept.clear()

    def _grow_stem(self, pass_: _Tree, stem: Stem, past: KeyValues) -> KeyValues:
        """The keys and values down to the end of a stem; what is kept of them is not computed again."""
        tree = pass_.tree
        whole = tree.path(stem.nodes[-1])
        begin = len(past.tokens)
        kept = self._kept.find(whole)
        wanted = [
            place
            for number in stem.nodes
            for place in range(
                tree.nodes[number].first, tree.nodes[number].first + len(tree.nodes[number].tokens)
            )
        ]
        first_wanted = next((i for i, place in enumerate(wanted) if place in pass_.wanted), len(whole))
        length = min(len(kept.tokens), begin + first_wanted)
        if length > begin:
            past, begin = kept.cropped(length), length
        places = wanted[len(wanted) - (len(whole) - begin) :]
        while begin < len(whole):
            end = min(len(whole), begin + self._budget.tokens)
            try:
                past = self._extend(pass_, past, whole[:end], places[: end - begin])
            except Exception as error:
                if not self._smaller(error):
                    raise
            else:
                del places[: end - begin]
                begin = end
                continue
            release(self._model.device)
        if _sequences(stem) >= _SHARED_BY:
            self._kept.keep(past)
        return past

    def _extend(self, pass_: _Tree, past: KeyValues, tokens: tuple[int, ...], places: list[int]) -> KeyValues:
        """The keys and values of ``tokens``, which begin with the past's."""
        begin, length = len(past.tokens), len(tokens) - len(past.tokens)
        layout = Layout(
            [list(tokens[begin:])], [list(range(begin, len(tokens)))], [[length] * length], [places]
        )
        cache = SharedPast(past, record=True)
        self._forward(pass_, layout, cache, begin)
        return cache.made(tokens)

    def _smaller(self, error: Exception) -> bool:
        """Whether to go on with a smaller budget: it was memory that ran out, and the size is ours to
        choose."""
        return self._batch is None and is_out_of_memory(error) and self._budget.halve()

    def _score_pieces(self, pass_: _Tree, pieces: list[Piece], past: KeyValues) -> None:
        """All batches of the pieces behind one stem; a batch that memory is too small for is made again,
        smaller."""
        left = sorted(pieces, key=lambda piece: piece.length)
        while left:
            limits = Limits(
                self._budget.tokens, self._budget.logits // self._vocabulary, self._batch, self._room
            )
            rows = take_batch(left, limits)
            layout = lay_out(pass_.tree, rows)
            try:
                self._forward(pass_, layout, SharedPast(past), len(past.tokens))
            except Exception as error:
                again = [piece for row in rows for piece in row]
                if not self._smaller(error):
                    raise
                left = sorted([*left, *again], key=lambda piece: piece.length)
            else:
                continue
            release(self._model.device)

    def _forward(self, pass_: _Tree, layout: Layout, cache: SharedPast, past: int) -> None:
        """One forward pass; what it says about wanted targets goes to ``pass_``."""
        asked = [
            (row, column, place)
            for row, places in enumerate(layout.places)
            for column, place in enumerate(places)
            if place in pass_.wanted
        ]
        inputs = self._inputs(layout, cache, past)
        logits = self._needed.logits(inputs, [row for row, _, _ in asked], [column for _, column, _ in asked])
        self._count(layout, len(asked))
        pass_.take([place for _, _, place in asked], logits)

    def _inputs(self, layout: Layout, cache: SharedPast, past: int) -> dict[str, Any]:
        import torch

        device = self._model.device
        positions = torch.tensor(layout.positions, device=device)
        inputs = {
            "input_ids": torch.tensor(layout.ids, device=device),
            "position_ids": positions,
            "past_key_values": cache,
            "use_cache": True,
        }
        if past or layout.branches:
            inputs["attention_mask"] = self._attention.masks(
                layout.seen_until, positions=positions, past=past, dtype=self._model.dtype
            )
        else:
            # Under the model's own causal mask no token sees the gaps to its right.
            inputs["attention_mask"] = torch.ones_like(positions)
        return inputs

    def _count(self, layout: Layout, logits: int) -> None:
        self._done.computed += sum(len(row) for row in layout.ids)
        self._done.padded += sum(row.count(-1) for row in layout.places)
        self._done.logits += logits


class _Tree:
    """A tree, the targets wanted at its tokens, and what is known of them so far."""

    def __init__(self, tree: Tree, works: Sequence[TokenWork]) -> None:
        self.tree = tree
        self._asked = [
            list(zip(tree.last_places(number, len(work.targets)), work.targets, strict=True))
            for number, work in enumerate(works)
        ]
        self.wanted: dict[int, list[int]] = defaultdict(list)
        for place, target in dict.fromkeys(pair for pairs in self._asked for pair in pairs):
            self.wanted[place].append(target)
        self.logits = [
            sum(place in self.wanted for place in range(node.first, node.first + len(node.tokens)))
            for node in tree.nodes
        ]
        self._chosen: Chosen = {}

    def take(self, places: Sequence[int], logits: torch.Tensor) -> None:
        """Reads the wanted targets off logits [places, vocabulary]."""
        import torch

        if not places:
            return
        asked = [
            (number, place, target) for number, place in enumerate(places) for target in self.wanted[place]
        ]
        rows = torch.tensor([number for number, _, _ in asked], device=logits.device)
        targets = torch.tensor([target for _, _, target in asked], device=logits.device)
        logprobs = (logits[rows, targets] - logits.logsumexp(dim=-1)[rows]).tolist()
        greedy = (logits.argmax(dim=-1)[rows] == targets).tolist()
        for (_, place, target), logprob, best in zip(asked, logprobs, greedy, strict=True):
            self._chosen[place, target] = Score(logprob, best)

    def scores(self) -> list[Score]:
        """The sequences' scores; sums are Python's floats, so that their order cannot matter."""
        found = []
        for pairs in self._asked:
            parts = [self._chosen[pair] for pair in pairs]
            found.append(Score(sum(part.logprob for part in parts), all(part.is_greedy for part in parts)))
        return found


def _sequences(stem: Stem) -> int:
    """Sequences that end below a stem, up to as many as matter."""
    return sum(piece.sequences for piece in stem.pieces) + sum(map(_sequences, stem.stems))
