"""The tree of shared prefixes, its parts, and the rows they are laid out in; no model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.prefix_tree import (
    BatchLimits,
    PrefixChain,
    PrefixChunk,
    PrefixTree,
    PromptGroup,
    build_tree,
    common_prefix_length,
    group_by_prefix,
    lay_out,
    longest_prefix_match,
    partition_tree,
    split_by_length,
    take_batch,
)

Sequences = list[tuple[int, ...]]

# Few different tokens, so that prefixes are shared a lot.
sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=25)
rooms = st.integers(1, 30)
sizes = st.none() | st.integers(1, 6)


def parts(root: PrefixChain) -> tuple[list[PrefixChunk], list[tuple[PrefixChain, tuple[int, ...]]]]:
    """All chunks, and all chains with the nodes of the chains above."""
    chunks: list[PrefixChunk] = []
    chains: list[tuple[PrefixChain, tuple[int, ...]]] = []
    todo: list[tuple[PrefixChain, tuple[int, ...]]] = [(root, ())]
    while todo:
        chain, above = todo.pop()
        chunks += chain.chunks
        chains.append((chain, above))
        todo += [(below, (*above, *chain.nodes)) for below in chain.chains]
    return chunks, chains


@given(sequences)
def test_every_sequence_is_a_path_and_every_token_is_there_once(given_: Sequences) -> None:
    tree = build_tree(given_)
    assert [tree.path(end) for end in tree.ends] == given_
    prefixes = {sequence[:length] for sequence in given_ for length in range(1, len(sequence) + 1)}
    assert tree.tokens == len(prefixes)
    for node in tree.nodes:
        assert node.tokens
        firsts = [tree.nodes[child].tokens[0] for child in node.children]
        assert len(set(firsts)) == len(firsts)


@given(sequences, st.integers(1, 12))
def test_last_places_number_the_last_tokens(given_: Sequences, count: int) -> None:
    tree = build_tree(given_)
    token_at = {
        node.first + offset: (token, tree.path(number)[: node.depth + offset])
        for number, node in enumerate(tree.nodes)
        for offset, token in enumerate(node.tokens)
    }
    assert len(token_at) == tree.tokens
    for number, sequence in enumerate(given_):
        wanted = min(count, len(sequence))
        places = tree.last_token_indices(number, wanted)
        begin = len(sequence) - wanted
        assert [token_at[place] for place in places] == [
            (sequence[at], sequence[:at]) for at in range(begin, len(sequence))
        ]


@given(sequences, rooms, sizes)
def test_every_node_is_computed_once_where_no_stem_is_too_short(
    given_: Sequences, room: int, size: int | None
) -> None:
    tree = build_tree(given_)
    chunks, chains = parts(partition_tree(tree, room=room, saving=0, most_sequences=size))
    computed = [number for chunk in chunks for number in chunk.nodes]
    computed += [number for chain, _ in chains for number in chain.nodes]
    assert sorted(computed) == list(range(len(tree.nodes)))


@given(sequences, rooms, st.integers(0, 40), sizes)
def test_parts_hang_together_and_keep_to_their_room(
    given_: Sequences, room: int, saving: int, size: int | None
) -> None:
    tree = build_tree(given_)
    chunks, chains = parts(partition_tree(tree, room=room, saving=saving, most_sequences=size))
    computed = {number for chunk in chunks for number in chunk.nodes}
    computed |= {number for chain, _ in chains for number in chain.nodes}
    assert computed == set(range(len(tree.nodes)))
    for chain, above in chains:
        node_chain = [*above, *chain.nodes]
        assert [tree.nodes[number].parent for number in node_chain] == [-1, *node_chain][: len(node_chain)]
        for chunk in chain.chunks:
            top = tree.nodes[chunk.nodes[0]].parent
            assert top == (node_chain[-1] if node_chain else -1)
            for number in chunk.nodes[1:]:
                assert tree.nodes[number].parent in chunk.nodes
            assert chunk.length == sum(len(tree.nodes[number].tokens) for number in chunk.nodes)
            single = not tree.nodes[chunk.nodes[-1]].children and all(
                tree.nodes[number].children == [after] or saving
                for number, after in zip(chunk.nodes, chunk.nodes[1:], strict=False)
            )
            assert chunk.length <= room or single
            assert size is None or chunk.sequences <= size or single


def test_a_forced_cut_ends_a_stem() -> None:
    tree = build_tree([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2)])
    root = partition_tree(tree, cuts={tree.ends[2]})
    assert not root.chunks
    (chain,) = root.chains
    assert tree.path(chain.nodes[-1]) == (1, 2)
    assert [chunk.length for chunk in chain.chunks] == [3]


def test_shots_are_a_stem_and_each_question_with_its_choices_a_piece() -> None:
    shots = tuple(range(100))
    questions = [tuple(range(1000 * number, 1000 * number + 30)) for number in range(1, 9)]
    tree = build_tree([(*shots, *question, choice) for question in questions for choice in range(4)])
    root = partition_tree(tree)
    (chain,) = root.chains
    assert [tree.path(number) for number in chain.nodes] == [shots]
    assert [chunk.length for chunk in chain.chunks] == [34] * 8


@given(sequences, st.integers(1, 40), st.none() | st.integers(1, 5), st.integers(1, 20))
def test_batches_hold_every_piece_once_and_keep_to_their_limits(
    given_: Sequences, tokens: int, size: int | None, logits: int
) -> None:
    tree = build_tree(given_)
    counts = [len(node.tokens) for node in tree.nodes]
    chunks, _ = parts(partition_tree(tree, room=8, saving=5, logits=counts))
    left = sorted(chunks, key=lambda chunk: chunk.length)
    taken: list[PrefixChunk] = []
    while left:
        rows = take_batch(left, BatchLimits(tokens, logits, size, row=16))
        batch = [chunk for row in rows for chunk in row]
        assert batch
        taken += batch
        longest = max(sum(chunk.length for chunk in row) for row in rows)
        if len(batch) > 1:
            assert size is not None or len(rows) == 1 or longest * len(rows) <= tokens
            assert size is None or sum(chunk.sequences for chunk in batch) <= size
            assert sum(chunk.logits for chunk in batch) <= logits
    assert sorted(map(id, taken)) == sorted(map(id, chunks))


@given(sequences)
def test_in_a_row_each_token_sees_its_own_prefix_and_nothing_else(given_: Sequences) -> None:
    tree = build_tree(given_)
    root = partition_tree(tree, room=10, saving=1000)
    left = sorted(root.chunks, key=lambda chunk: chunk.length)
    while left:
        check_sight(tree, take_batch(left, BatchLimits(40, 1000, row=30)))


def check_sight(tree: PrefixTree, rows: list[list[PrefixChunk]]) -> None:
    layout = lay_out(tree, rows)
    prefix = {
        node.first + offset: tree.path(number)[: node.depth + offset + 1]
        for number, node in enumerate(tree.nodes)
        for offset in range(len(node.tokens))
    }
    for ids, positions, until, places in zip(
        layout.ids, layout.positions, layout.seen_until, layout.token_indices, strict=True
    ):
        for column, place in enumerate(places):
            seen = [other for other in range(column + 1) if until[other] > column]
            if place < 0:
                assert seen == [column]
                continue
            assert tuple(ids[other] for other in seen) == prefix[place]
            assert [positions[other] for other in seen] == list(range(len(seen)))


def test_common_counts_equal_tokens_in_front() -> None:
    assert common_prefix_length((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common_prefix_length((1,), (1, 2)) == 1
    assert common_prefix_length((), (1, 2)) == 0
    assert common_prefix_length((2,), (1, 2)) == 0


def test_rows_of_similar_pieces_have_few_gaps() -> None:
    shots = tuple(range(200))
    made = [tuple([1000 + number] * (20 + number % 23)) for number in range(200)]
    tree = build_tree([(*shots, *question) for question in made])
    (chain,) = partition_tree(tree).chains
    left = sorted(chain.chunks, key=lambda chunk: chunk.length)
    gaps = total = 0
    while left:
        layout = lay_out(tree, take_batch(left, BatchLimits(512, 10**6)))
        gaps += sum(places.count(-1) for places in layout.token_indices)
        total += sum(map(len, layout.token_indices))
    assert gaps < 0.05 * total


PROMPTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 100)).map(
        lambda parts: (*[parts[0]] * 70, *range(20 * parts[1]), *[7] * parts[2], 9)[-parts[2] - 150 :]
    ),
    min_size=1,
    max_size=30,
)


@given(PROMPTS)
def test_every_prompt_is_in_one_group_with_what_it_begins_with(prompts: list[tuple[int, ...]]) -> None:
    groups = group_by_prefix(prompts)
    assert sorted(number for one in groups for number in one.members) == list(range(len(prompts)))
    for one in groups:
        first = prompts[one.members[0]]
        assert one.shared < min(len(prompts[number]) for number in one.members)
        assert all(common_prefix_length(first, prompts[number]) >= one.shared for number in one.members)


def test_prompts_of_different_shots_are_grouped_by_them() -> None:
    shots = {kind: tuple(range(1000 * kind, 1000 * kind + 100)) for kind in (1, 2)}
    prompts = [(*shots[1 + number % 2], number, number) for number in range(12)]
    prompts += [(5, 6, 7), (*shots[1][:3], 8)]
    found = [(one.shared, one.members) for one in group_by_prefix(prompts)]
    assert found == [(100, (0, 2, 4, 6, 8, 10)), (100, (1, 3, 5, 7, 9, 11)), (0, (12, 13))]
    assert group_by_prefix([shots[1]])[0].shared == 99
    assert group_by_prefix([shots[1]] * 5)[0].shared == 99


@given(st.lists(st.integers(11, 2000), min_size=1, max_size=40))
def test_prompts_of_a_lane_have_about_one_length(lengths: list[int]) -> None:
    whole = PromptGroup(10, tuple(range(len(lengths))))
    parts = split_by_length(whole, lengths)
    assert sorted(number for part in parts for number in part.members) == list(whole.members)
    for part in parts:
        tails = [lengths[number] - part.shared for number in part.members]
        assert max(tails) <= 2 * min(tails) + 64


@given(sequences, st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple))
def test_the_nearest_of_ordered_texts_shares_most_tokens(given_: Sequences, text: tuple[int, ...]) -> None:
    texts = sorted(given_)
    number = longest_prefix_match(texts, text)
    assert number is not None
    assert common_prefix_length(texts[number], text) == max(common_prefix_length(one, text) for one in texts)
    assert longest_prefix_match([], text) is None
