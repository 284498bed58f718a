"""Prefixes that token sequences share: trees for scoring, groups for generation. Pure; runs no model.

A tree's nodes are runs of tokens: what all sequences below share is one node. ``partition_tree`` cuts the tree in two
kinds of parts. A prefix *chain* is a run of nodes whose keys and values are kept for everything below it. A *chunk* is
a whole subtree, laid out in one row, where each token sees its own ancestors only:

    shots ─┬─ question 1 ─┬─ choice A        chain:  shots
           │              └─ choice B        chunks: question 1 + A + B
           └─ question 2 ─┬─ choice A                question 2 + A + B
                          └─ choice B

So the keys and values of a question are never copied for its choices.

``take_batch`` puts chunks into batches of rows of nearly equal length.

``group_by_prefix`` and ``split_by_length`` decide which prompts are continued together after a shared prefix.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Final, TypeAlias

ROOM: Final = 256
"""The most tokens of a chunk, where the tree can be cut: attention within a row grows with its square."""

SAVING: Final = 64
"""The number of tokens that a chain must save.

A pass over few tokens takes as long as some dozens of tokens in a large one, so a shorter prefix is computed again
with each chunk.
"""


@dataclass(slots=True)
class PrefixNode:
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
class PrefixTree:
    """A prefix tree; ``ends[i]`` is the index of the node that sequence i ends with, which sequences may share."""

    nodes: list[PrefixNode]
    ends: list[int]

    @property
    def tokens(self) -> int:
        """Return the number of distinct tokens: each, with the tokens before it, counts once."""
        return sum(len(node.tokens) for node in self.nodes)

    def last_token_indices(self, sequence: int, count: int) -> list[int]:
        """Return the tree's indices of the last ``count`` tokens of a sequence, in order."""
        token_indices: list[int] = []
        at = self.ends[sequence]
        while len(token_indices) < count:
            node = self.nodes[at]
            token_indices += range(
                node.first + len(node.tokens) - 1,
                node.first + max(0, len(node.tokens) - (count - len(token_indices))) - 1,
                -1,
            )
            at = node.parent
        return token_indices[::-1]

    def token_indices(self, nodes: Iterable[int]) -> list[int]:
        """Return the tree's indices of the tokens of nodes, in order."""
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
class PrefixChunk:
    """Nodes computed in one row, each after its parent; the first one's parent is in a chain, or absent."""

    nodes: tuple[int, ...]
    length: int
    sequences: int
    logits: int


@dataclass(slots=True)
class PrefixChain:
    """A run of nodes, each the parent of the next, and the parts below it; the root's run is empty."""

    nodes: tuple[int, ...] = ()
    chunks: list[PrefixChunk] = field(default_factory=list)
    chains: list[PrefixChain] = field(default_factory=list)


def common_prefix_length(first: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the longest common prefix of two sequences."""
    low, high = 0, min(len(first), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def longest_prefix_match(texts: Sequence[tuple[int, ...]], text: tuple[int, ...]) -> int | None:
    """Return the index of the text that shares the longest prefix with another; None without texts.

    ``texts`` are sorted.
    """
    index = bisect_left(texts, text)
    return max(
        range(max(0, index - 1), min(len(texts), index + 1)),
        key=lambda number: common_prefix_length(texts[number], text),
        default=None,
    )


def build_tree(sequences: Sequence[tuple[int, ...]]) -> PrefixTree:
    """Return the tree of sequences, none of them empty."""
    nodes: list[PrefixNode] = []
    ends = [0] * len(sequences)
    branch: list[int] = []  # the nodes of the previous sequence, from the root on
    before: tuple[int, ...] = ()
    for number in sorted(range(len(sequences)), key=sequences.__getitem__):
        sequence = sequences[number]
        shared = common_prefix_length(before, sequence)
        if shared == len(sequence) == len(before):
            ends[number] = branch[-1]
            continue
        while branch and nodes[branch[-1]].depth >= shared:
            branch.pop()
        if branch and nodes[branch[-1]].end > shared:
            branch.append(_split(nodes, branch.pop(), shared))
        parent = branch[-1] if branch else -1
        branch.append(len(nodes))
        nodes.append(PrefixNode(sequence[shared:], shared, parent))
        ends[number] = branch[-1]
        before = sequence
    for number, node in enumerate(nodes):
        if node.parent >= 0:
            nodes[node.parent].children.append(number)
    for node, first in zip(nodes, accumulate((len(node.tokens) for node in nodes), initial=0), strict=False):
        node.first = first
    return PrefixTree(nodes, ends)


def partition_tree(
    tree: PrefixTree,
    *,
    room: int = ROOM,
    saving: int = SAVING,
    most_sequences: int | None = None,
    logits: Sequence[int] = (),
    cuts: Collection[int] = (),
) -> PrefixChain:
    """Cut a tree into prefix chains and chunks, and return the root chain.

    Every node is in at least one part; it is in several only where a chain would save less than ``saving`` tokens.

    Args:
        tree: The tree.
        room: The most tokens of a chunk, unless it is one node.
        saving: The least tokens that a chain must save.
        most_sequences: The most sequences of a chunk, unless it is one node; all by default.
        logits: The number of needed logits in each node.
        cuts: The nodes that end a chain in any case.

    """
    return _TreePartition(
        tree,
        cuts,
        logits or [0] * len(tree.nodes),
        room=room,
        saving=saving,
        most=len(tree.ends) if most_sequences is None else most_sequences,
    ).root


class _TreePartition:
    """The sums over subtrees that ``partition_tree`` decides by, and the parts it makes."""

    def __init__(
        self,
        tree: PrefixTree,
        cuts: Collection[int],
        logits: Sequence[int],
        *,
        room: int,
        saving: int,
        most: int,
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

    def _place(self, number: int, carried: tuple[int, ...], chain: PrefixChain) -> None:
        """Make a node's subtree a chunk of the chain or a chain below it, or defer to the children."""
        node = self._nodes[number]
        if not node.children or self._fits([number], carried):
            chain.chunks.append(self._chunk([number], carried))
            return
        node_chain = (*carried, number)
        length = sum(len(self._nodes[node_index].tokens) for node_index in node_chain)
        parts = max(2, -(-(self._size[number] - len(node.tokens)) // max(1, self._room - length)))
        if number in self._cuts or length >= self._room or length * (parts - 1) >= self._saving:
            below = PrefixChain(node_chain)
            chain.chains.append(below)
            self._todo += [(child, (), below) for child in node.children]
        else:
            self._carry(node, node_chain, chain)

    def _carry(self, node: PrefixNode, node_chain: tuple[int, ...], chain: PrefixChain) -> None:
        """Pack the children into as few chunks as possible, each with a copy of a short run of nodes."""
        group: list[int] = []
        for child in sorted(node.children, key=lambda child: self._size[child]):
            if not self._fits([child], node_chain):
                self._todo.append((child, node_chain, chain))
            elif self._fits([*group, child], node_chain):
                group.append(child)
            else:
                chain.chunks.append(self._chunk(group, node_chain))
                group = [child]
        if group:
            chain.chunks.append(self._chunk(group, node_chain))

    def _fits(self, tops: Sequence[int], carried: tuple[int, ...]) -> bool:
        """Return whether subtrees fit into one chunk, together with the nodes carried into it."""
        length = sum(self._size[top] for top in tops) + sum(len(self._nodes[node].tokens) for node in carried)
        sequences = sum(self._below[top] for top in tops) + sum(self._here[node] for node in carried)
        cut = any(self._cut[top] for top in tops)
        return length <= self._room and sequences <= self._most and not cut

    def _chunk(self, tops: Sequence[int], carried: tuple[int, ...]) -> PrefixChunk:
        """Return a chunk of subtrees, which begins with the nodes carried into it."""
        nodes = list(carried)
        todo = list(reversed(tops))
        while todo:
            nodes.append(todo.pop())
            todo += self._nodes[nodes[-1]].children
        return PrefixChunk(
            tuple(nodes),
            length=sum(len(self._nodes[node].tokens) for node in nodes),
            sequences=sum(self._here[node] for node in nodes),
            logits=sum(self._logits[node] for node in nodes),
        )


def _split(nodes: list[PrefixNode], number: int, depth: int) -> int:
    """Split a node at a depth within it; return the number of the new node, which holds its upper part."""
    lower = nodes[number]
    cut = depth - lower.depth
    nodes.append(PrefixNode(lower.tokens[:cut], lower.depth, lower.parent))
    lower.tokens, lower.depth, lower.parent = lower.tokens[cut:], depth, len(nodes) - 1
    return len(nodes) - 1


Row: TypeAlias = list[PrefixChunk]

_WIDTHS: Final = (1, 2, 3, 4)
"""The row lengths that are tried, as multiples of the longest chunk."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch, which always holds at least one chunk.

    ``row`` is a length beyond which rows are not extended for the sake of fewer gaps.
    """

    tokens: int
    logits: int
    sequences: int | None = None
    row: int = 256


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The rows of a forward pass, padded on the right.

    Attributes:
        ids: Token ids.
        positions: The position of each token in its text, from 0.
        seen_until: For each token, the column after the last token that sees it.
        token_indices: The tree's index of each token, -1 for padding.

    """

    ids: list[list[int]]
    positions: list[list[int]]
    seen_until: list[list[int]]
    token_indices: list[list[int]]

    @property
    def branches(self) -> bool:
        """Return whether any row is more than one run of tokens."""
        return any(
            end < len(row) - row.count(-1) and token_index >= 0
            for row, ends in zip(self.token_indices, self.seen_until, strict=True)
            for token_index, end in zip(row, ends, strict=True)
        )


def take_batch(chunks: list[PrefixChunk], limits: BatchLimits) -> list[Row]:
    """Remove the chunks of the next batch from ``chunks``, sorted by length, and return its rows.

    The longest come first, so that a lack of memory shows at once. Rows are filled with the longest chunk that still
    fits, for a few row lengths; the length with the fewest gaps is taken.
    """
    longest = chunks[-1].length
    lengths = [chunk.length for chunk in chunks]
    best: list[list[int]] = []
    least = 2.0
    for times in _WIDTHS:
        if times > 1 and times * longest > limits.row:
            break
        rows = _fill_rows(chunks, lengths, times * longest, limits)
        sums = [sum(lengths[number] for number in row) for row in rows]
        gaps = 1.0 - sum(sums) / (len(rows) * max(sums))
        if gaps < least - 0.01:
            best, least = rows, gaps
    batch = [[chunks[number] for number in row] for row in best]
    for number in sorted((number for row in best for number in row), reverse=True):
        del chunks[number]
    return batch


def lay_out(tree: PrefixTree, rows: Sequence[Row]) -> RowLayout:
    """Return the layout of rows, each of chunks one after the other."""
    layout = RowLayout([], [], [], [])
    width = max(sum(chunk.length for chunk in row) for row in rows)
    for row in rows:
        ids: list[int] = []
        positions: list[int] = []
        until: list[int] = []
        token_indices: list[int] = []
        for chunk in row:
            offset = len(ids)
            for number in chunk.nodes:
                node = tree.nodes[number]
                ids += node.tokens
                positions += range(node.depth, node.end)
                token_indices += range(node.first, node.first + len(node.tokens))
            until += [offset + end for end in _seen_until(tree, chunk)]
        gap = width - len(ids)
        layout.seen_until.append([*until, *range(len(ids) + 1, width + 1)])
        layout.ids.append(ids + [0] * gap)
        layout.positions.append(positions + [0] * gap)
        layout.token_indices.append(token_indices + [-1] * gap)
    return layout


def _fill_rows(
    chunks: Sequence[PrefixChunk], lengths: Sequence[int], width: int, limits: BatchLimits
) -> list[list[int]]:
    """Return the indices of the chunks in each row, for rows of up to ``width`` tokens."""
    left = list(range(len(chunks)))
    left_lengths = list(lengths)
    logits = sequences = 0
    rows: list[list[int]] = []
    while left and (not rows or limits.sequences is not None or (len(rows) + 1) * width <= limits.tokens):
        row: list[int] = []
        room = width
        while (at := bisect_right(left_lengths, room) - 1) >= 0:
            chunk = chunks[left[at]]
            logits += chunk.logits
            sequences += chunk.sequences
            full = logits > limits.logits or (limits.sequences is not None and sequences > limits.sequences)
            if full and (rows or row):
                return [*rows, row] if row else rows
            room -= left_lengths.pop(at)
            row.append(left.pop(at))
        rows.append(row)
    return rows


def _seen_until(tree: PrefixTree, chunk: PrefixChunk) -> list[int]:
    """Return for each token of a chunk the column after its last descendant, counted within the chunk."""
    begins: dict[int, int] = {}
    last: dict[int, int] = {}
    column = 0
    for number in chunk.nodes:
        begins[number] = column
        column += len(tree.nodes[number].tokens)
        last[number] = column
    for number in reversed(chunk.nodes):
        parent = tree.nodes[number].parent
        if parent in last:
            last[parent] = max(last[parent], last[number])
    return [last[number] for number in chunk.nodes for _ in tree.nodes[number].tokens]


_LEAST_PROMPTS: Final = 4
"""The number of prompts for which a longer prefix of their own is worth batches of their own."""

_LEAST_TOKENS: Final = 64
"""The tokens by which such a prefix must be longer than the one they share with others."""


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Indices of prompts, and the number of tokens that all share at the start; each prompt has at least one more."""

    shared: int
    members: tuple[int, ...]


def group_by_prefix(prompts: Sequence[tuple[int, ...]]) -> list[PromptGroup]:
    """Group prompts by shared prefix, each prompt in one group, with the members in ascending order."""
    order = sorted(range(len(prompts)), key=lambda number: prompts[number])
    groups, rest = _split_prompts(prompts, order, 0)
    if rest:
        groups.append(_group(prompts, rest))
    sorted_groups = [PromptGroup(group.shared, tuple(sorted(group.members))) for group in groups]
    return sorted(sorted_groups, key=lambda group: group.members)


def split_by_length(prefix_group: PromptGroup, lengths: Sequence[int]) -> list[PromptGroup]:
    """Split a group so that no tail after its prefix is much longer than another; ``lengths`` are in tokens."""
    parts: list[list[int]] = []
    most = 0
    for number in sorted(prefix_group.members, key=lambda number: lengths[number]):
        tail = lengths[number] - prefix_group.shared
        if not parts or tail > most:
            parts.append([])
            most = 2 * tail + _LEAST_TOKENS
        parts[-1].append(number)
    return sorted(
        (PromptGroup(prefix_group.shared, tuple(sorted(members))) for members in parts),
        key=lambda members: members.members,
    )


def _split_prompts(
    prompts: Sequence[tuple[int, ...]], order: list[int], base: int
) -> tuple[list[PromptGroup], list[int]]:
    """Return the groups below a prefix of ``base`` tokens, and the prompts that are in no group."""
    if len(order) < _LEAST_PROMPTS:
        return [], order
    shared = common_prefix_length(prompts[order[0]], prompts[order[-1]])
    ours = shared - base >= _LEAST_TOKENS
    groups: list[PromptGroup] = []
    rest: list[int] = []
    for _, run in groupby(order, key=lambda number: prompts[number][: shared + 1]):
        members = list(run)
        if len(members) == len(order):  # all are the same
            return ([_group(prompts, order)], []) if ours else ([], order)
        subgroups, left = _split_prompts(prompts, members, shared if ours else base)
        groups += subgroups
        rest += left
    if ours and len(rest) >= _LEAST_PROMPTS:
        groups.append(_group(prompts, rest))
        rest = []
    return groups, rest


def _group(prompts: Sequence[tuple[int, ...]], order: Sequence[int]) -> PromptGroup:
    """Return one group of prompts, whose indices are sorted by their tokens."""
    least = min(len(prompts[number]) for number in order)
    return PromptGroup(
        min(common_prefix_length(prompts[order[0]], prompts[order[-1]]), least - 1), tuple(order)
    )
