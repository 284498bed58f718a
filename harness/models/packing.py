"""Pieces of a tree -> batches of rows of nearly equal length. Pure; runs no model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from harness.models.prefix_tree import Piece, Tree

Row: TypeAlias = list[Piece]

_WIDTHS: Final = (1, 2, 3, 4)
"""Row lengths that are tried, in longest pieces."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch holds at most, though always one piece; ``row``: a length that rows are not made longer
    than for the sake of fewer gaps."""

    tokens: int
    logits: int
    sequences: int | None = None
    row: int = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows as numbers, padded on the right: token ids, their positions in the text, and for each token the
    column behind the last one that sees it. ``places`` are the tree's numbers of the tokens, by (row, column)
    order, with -1 where there is none.
    """

    ids: list[list[int]]
    positions: list[list[int]]
    seen_until: list[list[int]]
    places: list[list[int]]

    @property
    def branches(self) -> bool:
        """Whether any row is more than one run of tokens."""
        return any(
            end < len(row) - row.count(-1) and place >= 0
            for row, ends in zip(self.places, self.seen_until, strict=True)
            for place, end in zip(row, ends, strict=True)
        )


def take_batch(pieces: list[Piece], limits: Limits) -> list[Row]:
    """The rows of the next batch; its pieces are taken out of ``pieces``, which are in order of length.

    The longest come first, so that a lack of memory shows at once. Rows are filled with the longest piece
    that still fits, for a few row lengths; the one with the fewest gaps is taken.
    """
    longest = pieces[-1].length
    lengths = [piece.length for piece in pieces]
    best: list[list[int]] = []
    least = 2.0
    for times in _WIDTHS:
        if times > 1 and times * longest > limits.row:
            break
        rows = _fill(pieces, lengths, times * longest, limits)
        sums = [sum(lengths[number] for number in row) for row in rows]
        gaps = 1.0 - sum(sums) / (len(rows) * max(sums))
        if gaps < least - 0.01:
            best, least = rows, gaps
    batch = [[pieces[number] for number in row] for row in best]
    for number in sorted((number for row in best for number in row), reverse=True):
        del pieces[number]
    return batch


def lay_out(tree: Tree, rows: Sequence[Row]) -> Layout:
    """The rows' tokens, one piece behind the other."""
    layout = Layout([], [], [], [])
    width = max(sum(piece.length for piece in row) for row in rows)
    for row in rows:
        ids: list[int] = []
        positions: list[int] = []
        until: list[int] = []
        places: list[int] = []
        for piece in row:
            offset = len(ids)
            for number in piece.nodes:
                node = tree.nodes[number]
                ids += node.tokens
                positions += range(node.depth, node.end)
                places += range(node.first, node.first + len(node.tokens))
            until += [offset + end for end in _ends(tree, piece)]
        gap = width - len(ids)
        layout.seen_until.append([*until, *range(len(ids) + 1, width + 1)])
        layout.ids.append(ids + [0] * gap)
        layout.positions.append(positions + [0] * gap)
        layout.places.append(places + [-1] * gap)
    return layout


def _fill(pieces: Sequence[Piece], lengths: Sequence[int], width: int, limits: Limits) -> list[list[int]]:
    """Numbers of pieces by row, for rows of a given width."""
    left = list(range(len(pieces)))
    left_lengths = list(lengths)
    logits = sequences = 0
    rows: list[list[int]] = []
    while left and (not rows or limits.sequences is not None or (len(rows) + 1) * width <= limits.tokens):
        row: list[int] = []
        room = width
        while (at := bisect_right(left_lengths, room) - 1) >= 0:
            piece = pieces[left[at]]
            logits += piece.logits
            sequences += piece.sequences
            full = logits > limits.logits or (limits.sequences is not None and sequences > limits.sequences)
            if full and (rows or row):
                return [*rows, row] if row else rows
            room -= left_lengths.pop(at)
            row.append(left.pop(at))
        rows.append(row)
    return rows


def _ends(tree: Tree, piece: Piece) -> list[int]:
    """For each token of a piece the column, within the piece, behind the last token that descends from it."""
    begins: dict[int, int] = {}
    last: dict[int, int] = {}
    column = 0
    for number in piece.nodes:
        begins[number] = column
        column += len(tree.nodes[number].tokens)
        last[number] = column
    for number in reversed(piece.nodes):
        parent = tree.nodes[number].parent
        if parent in last:
            last[parent] = max(last[parent], last[number])
    return [last[number] for number in piece.nodes for _ in tree.nodes[number].tokens]
