"""Prefixes that token sequences share: trees for scoring, groups for generation. Pure; runs no model.

A tree's nodes are runs of tokens: what all sequences below share is one node. ``divide`` cuts the tree in two kinds
of parts. A *stem* is a run of nodes whose keys and values are kept for everything below it. A *piece* is a whole
subtree, laid out in one row, where each token sees its own ancestors only:

    shots ─┬─ question 1 ─┬─ choice A        stem:   shots
           │              └─ choice B        pieces: question 1 + A + B
           └─ question 2 ─┬─ choice A                question 2 + A + B
                          └─ choice B

So the keys and values of a question are never copied for its choices.

``take_batch`` puts pieces into batches of rows of nearly equal length.

Of prompts that are continued, ``group`` and ``by_length`` decide which go on together after a prefix that they share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Final, TypeAlias

ROOM: Final = 256
"""The most tokens of a piece, where the tree can be cut: attention within a row grows with its square."""

SAVING: Final = 64
"""The number of tokens that a stem must save.

A pass over few tokens takes as long as some dozens of tokens in a large one, so a shorter prefix is computed again
with each piece.
"""


@dataclass(slots=True)
class Node:
    """A run of tokens; ``depth`` tokens come before it. Its token i is the tree's token ``first`` + i."""

    tokens: tuple[int, ...]
    depth: int
    parent: int
    first: int = 0
    children: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Return the number of tokens up to and including this node."""
        return self.depth + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Tree:
    """``ends[i]`` is the node that sequence i ends with; sequences may share it."""

    nodes: list[Node]
    ends: list[int]

    @property
    def tokens(self) -> int:
        """Return the number of distinct tokens: each, with the tokens before it, counts once."""
        return sum(len(node.tokens) for node in self.nodes)

    def last_places(self, sequence: int, count: int) -> list[int]:
        """Return the tree's numbers of the last ``count`` tokens of a sequence, in order."""
        places: list[int] = []
        at = self.ends[sequence]
        while len(places) < count:
            node = self.nodes[at]
            places += range(
                node.first + len(node.tokens) - 1,
                node.first + max(0, len(node.tokens) - (count - len(places))) - 1,
                -1,
            )
            at = node.parent
        return places[::-1]

    def places(self, nodes: Iterable[int]) -> list[int]:
        """Return the tree's numbers of the tokens of nodes, in order."""
        return [
            self.nodes[number].first + offset
            for number in nodes
            for offset in range(len(self.nodes[number].tokens))
        ]

    def path(self, node: int) -> tuple[int, ...]:
        """Return all tokens from the root to the end of a node."""
        runs: list[tuple[int, ...]] = []
        while node >= 0:
            runs.append(self.nodes[node].tokens)
            node = self.nodes[node].parent
        return tuple(token for run in reversed(runs) for token in run)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Nodes computed in one row, each after its parent; the first one's parent is in a stem, or absent."""

    nodes: tuple[int, ...]
    length: int
    sequences: int
    logits: int


@dataclass(slots=True)
class PrefixChain:
    """A run of nodes, each the parent of the next, and the parts below it; the root's run is empty."""

    nodes: tuple[int, ...] = ()
    pieces: list[Chunk] = field(default_factory=list)
    stems: list[PrefixChain] = field(default_factory=list)


def common(first: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the longest common prefix of two sequences."""
    low, high = 0, min(len(first), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def nearest(texts: Sequence[tuple[int, ...]], text: tuple[int, ...]) -> int | None:
    """Return the number of the text, of those given in order, with which another shares most tokens at the start."""
    index = bisect_left(texts, text)
    return max(
        range(max(0, index - 1), min(len(texts), index + 1)),
        key=lambda number: common(texts[number], text),
        default=None,
    )


def grow(sequences: Sequence[tuple[int, ...]]) -> Tree:
    """Return the tree of sequences, none of them empty."""
    nodes: list[Node] = []
    ends = [0] * len(sequences)
    branch: list[int] = []  # the nodes of the previous sequence, from the root on
    before: tuple[int, ...] = ()
    for number in sorted(range(len(sequences)), key=sequences.__getitem__):
        sequence = sequences[number]
        shared = common(before, sequence)
        if shared == len(sequence) == len(before):
            ends[number] = branch[-1]
            continue
        while branch and nodes[branch[-1]].depth >= shared:
            branch.pop()
        if branch and nodes[branch[-1]].end > shared:
            branch.append(_split(nodes, branch.pop(), shared))
        parent = branch[-1] if branch else -1
        branch.append(len(nodes))
        nodes.append(Node(sequence[shared:], shared, parent))
        ends[number] = branch[-1]
        before = sequence
    for number, node in enumerate(nodes):
        if node.parent >= 0:
            nodes[node.parent].children.append(number)
    for node, first in zip(nodes, accumulate((len(node.tokens) for node in nodes), initial=0), strict=False):
        node.first = first
    return Tree(nodes, ends)


def divide(
    tree: Tree,
    *,
    room: int = ROOM,
    saving: int = SAVING,
    most_sequences: int | None = None,
    logits: Sequence[int] = (),
    cuts: Collection[int] = (),
) -> PrefixChain:
    """Return the tree in parts.

    Every node is in at least one part, and in several only where a stem would save less than ``saving`` tokens. A
    piece has at most ``room`` tokens and ``most_sequences`` sequences, unless it is one node. ``logits[i]`` is the
    number of needed logits in node i. Nodes in ``cuts`` end a stem in any case.
    """
    return _Division(
        tree,
        cuts,
        logits or [0] * len(tree.nodes),
        room=room,
        saving=saving,
        most=len(tree.ends) if most_sequences is None else most_sequences,
    ).root


class _Division:
    """The sums over subtrees that ``divide`` decides by, and the parts it makes."""

    def __init__(
        self, tree: Tree, cuts: Collection[int], logits: Sequence[int], *, room: int, saving: int, most: int
    ) -> None:
        self._nodes, self._room, self._saving = tree.nodes, room, saving
        self._most, self._logits, self._cuts = most, logits, cuts
        self._size = [len(node.tokens) for node in tree.nodes]
        self._here = [0] * len(tree.nodes)
        for end in tree.ends:
            self._here[end] += 1
        self._below = list(self._here)
        self._cut = [number in cuts for number in range(len(tree.nodes))]
        for number in sorted(range(len(tree.nodes)), key=lambda number: -tree.nodes[number].depth):
            if (parent := tree.nodes[number].parent) >= 0:
                self._size[parent] += self._size[number]
                self._below[parent] += self._below[number]
                self._cut[parent] |= self._cut[number]
        self.root = PrefixChain()
        self._todo: list[tuple[int, tuple[int, ...], PrefixChain]] = [
            (number, (), self.root) for number, node in enumerate(tree.nodes) if node.parent < 0
        ]
        while self._todo:
            self._place(*self._todo.pop())

    def _place(self, number: int, carried: tuple[int, ...], stem: PrefixChain) -> None:
        """Make a node's subtree a piece of the stem, or a stem below it, or leave that to its children."""
        node = self._nodes[number]
        if not node.children or self._fits([number], carried):
            stem.pieces.append(self._piece([number], carried))
            return
        chain = (*carried, number)
        length = sum(len(self._nodes[node_index].tokens) for node_index in chain)
        parts = max(2, -(-(self._size[number] - len(node.tokens)) // max(1, self._room - length)))
        if number in self._cuts or length >= self._room or length * (parts - 1) >= self._saving:
            below = PrefixChain(chain)
            stem.stems.append(below)
            self._todo += [(child, (), below) for child in node.children]
        else:
            self._carry(node, chain, stem)

    def _carry(self, node: Node, chain: tuple[int, ...], stem: PrefixChain) -> None:
        """Compute a short run of nodes again with each piece, and so put as many children as fit in each."""
        group: list[int] = []
        for child in sorted(node.children, key=lambda child: self._size[child]):
            if not self._fits([child], chain):
                self._todo.append((child, chain, stem))
            elif self._fits([*group, child], chain):
                group.append(child)
            else:
                stem.pieces.append(self._piece(group, chain))
                group = [child]
        if group:
            stem.pieces.append(self._piece(group, chain))

    def _fits(self, tops: Sequence[int], carried: tuple[int, ...]) -> bool:
        """Return whether subtrees can be one piece, after nodes that are computed again with them."""
        length = sum(self._size[top] for top in tops) + sum(len(self._nodes[node].tokens) for node in carried)
        sequences = sum(self._below[top] for top in tops) + sum(self._here[node] for node in carried)
        cut = any(self._cut[top] for top in tops)
        return length <= self._room and sequences <= self._most and not cut

    def _piece(self, tops: Sequence[int], carried: tuple[int, ...]) -> Chunk:
        """Return subtrees as one piece, after nodes that are computed again with them."""
        nodes = list(carried)
        todo = list(reversed(tops))
        while todo:
            nodes.append(todo.pop())
            todo += self._nodes[nodes[-1]].children
        return Chunk(
            tuple(nodes),
            length=sum(len(self._nodes[node].tokens) for node in nodes),
            sequences=sum(self._here[node] for node in nodes),
            logits=sum(self._logits[node] for node in nodes),
        )


def _split(nodes: list[Node], number: int, depth: int) -> int:
    """Split a node at a depth within it; return the number of the new node, which holds its upper part."""
    lower = nodes[number]
    cut = depth - lower.depth
    nodes.append(Node(lower.tokens[:cut], lower.depth, lower.parent))
    lower.tokens, lower.depth, lower.parent = lower.tokens[cut:], depth, len(nodes) - 1
    return len(nodes) - 1


Row: TypeAlias = list[Chunk]

_WIDTHS: Final = (1, 2, 3, 4)
"""The row lengths that are tried, as multiples of the longest piece."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch, which always holds at least one piece.

    ``row`` is a length beyond which rows are not extended for the sake of fewer gaps.
    """

    tokens: int
    logits: int
    sequences: int | None = None
    row: int = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows as numbers, padded on the right.

    They hold token ids, their positions in the text, and for each token the column after the last one that sees it.
    ``places`` are the tree's numbers of the tokens, by (row, column) order, with -1 where there is none.
    """

    ids: list[list[int]]
    positions: list[list[int]]
    seen_until: list[list[int]]
    places: list[list[int]]

    @property
    def branches(self) -> bool:
        """Return whether any row is more than one run of tokens."""
        return any(
            end < len(row) - row.count(-1) and token_index >= 0
            for row, ends in zip(self.places, self.seen_until, strict=True)
            for token_index, end in zip(row, ends, strict=True)
        )


def take_batch(pieces: list[Chunk], limits: BatchLimits) -> list[Row]:
    """Return the rows of the next batch, and take its pieces out of ``pieces``, which are in order of length.

    The longest come first, so that a lack of memory shows at once. Rows are filled with the longest piece that still
    fits, for a few row lengths; the length with the fewest gaps is taken.
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
    """Return the rows' tokens, one piece after the other."""
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


def _fill(
    pieces: Sequence[Chunk], lengths: Sequence[int], width: int, limits: BatchLimits
) -> list[list[int]]:
    """Return the numbers of pieces by row, for rows of a given width."""
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


def _ends(tree: Tree, piece: Chunk) -> list[int]:
    """Return for each token of a piece the column, within the piece, after the last token that descends from it."""
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


_LEAST_PROMPTS: Final = 4
"""The number of prompts for which a longer prefix of their own is worth batches of their own."""

_LEAST_TOKENS: Final = 64
"""The tokens by which such a prefix must be longer than the one they share with others."""


@dataclass(frozen=True, slots=True)
class Group:
    """Numbers of prompts, and how many tokens all of them share at the start; each has at least one more."""

    shared: int
    members: tuple[int, ...]


def group(prompts: Sequence[tuple[int, ...]]) -> list[Group]:
    """Return the prompts grouped by prefix, each prompt in one group; a group's members keep their first order."""
    order = sorted(range(len(prompts)), key=lambda number: prompts[number])
    groups, rest = _divide(prompts, order, 0)
    if rest:
        groups.append(_group(prompts, rest))
    sorted_groups = [Group(group.shared, tuple(sorted(group.members))) for group in groups]
    return sorted(sorted_groups, key=lambda group: group.members)


def by_length(prefix_group: Group, lengths: Sequence[int]) -> list[Group]:
    """Return the group in parts by the length of the prompts, given in tokens: no tail is much longer than another."""
    parts: list[list[int]] = []
    most = 0
    for number in sorted(prefix_group.members, key=lambda number: lengths[number]):
        tail = lengths[number] - prefix_group.shared
        if not parts or tail > most:
            parts.append([])
            most = 2 * tail + _LEAST_TOKENS
        parts[-1].append(number)
    return sorted(
        (Group(prefix_group.shared, tuple(sorted(members))) for members in parts),
        key=lambda members: members.members,
    )


def _divide(prompts: Sequence[tuple[int, ...]], order: list[int], base: int) -> tuple[list[Group], list[int]]:
    """Return the groups below a prefix of ``base`` tokens, and the prompts that are in none."""
    if len(order) < _LEAST_PROMPTS:
        return [], order
    shared = common(prompts[order[0]], prompts[order[-1]])
    ours = shared - base >= _LEAST_TOKENS
    groups: list[Group] = []
    rest: list[int] = []
    for _, run in groupby(order, key=lambda number: prompts[number][: shared + 1]):
        members = list(run)
        if len(members) == len(order):  # all are the same
            return ([_group(prompts, order)], []) if ours else ([], order)
        subgroups, left = _divide(prompts, members, shared if ours else base)
        groups += subgroups
        rest += left
    if ours and len(rest) >= _LEAST_PROMPTS:
        groups.append(_group(prompts, rest))
        rest = []
    return groups, rest


def _group(prompts: Sequence[tuple[int, ...]], order: Sequence[int]) -> Group:
    """Return sorted prompts as a group."""
    least = min(len(prompts[number]) for number in order)
    return Group(min(common(prompts[order[0]], prompts[order[-1]]), least - 1), tuple(order))
