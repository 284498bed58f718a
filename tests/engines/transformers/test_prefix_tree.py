"""The tree of shared prefixes, its parts, and the rows they are laid out in; no model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.prefix_tree import (
    BatchLimits,
    Chunk,
    Group,
    PrefixChain,
    Tree,
    by_length,
    common,
    divide,
    group,
    grow,
    lay_out,
    nearest,
    take_batch,
)

Sequences = list[tuple[int, ...]]

# Few different tokens, so that prefixes are shared a lot.
sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=25)
rooms = st.integers(1, 30)
sizes = st.none() | st.integers(1, 6)


def parts(root: PrefixChain) -> tuple[list[Chunk], list[tuple[PrefixChain, tuple[int, ...]]]]:
    """All pieces, and all stems with the nodes of the stems above."""
    pieces: list[Chunk] = []
    stems: list[tuple[PrefixChain, tuple[int, ...]]] = []
    todo: list[tuple[PrefixChain, tuple[int, ...]]] = [(root, ())]
    while todo:
        stem, above = todo.pop()
        pieces += stem.pieces
        stems.append((stem, above))
        todo += [(below, (*above, *stem.nodes)) for below in stem.stems]
    return pieces, stems


@given(sequences)
def test_every_sequence_is_a_path_and_every_token_is_there_once(given_: Sequences) -> None:
    tree = grow(given_)
    assert [tree.path(end) for end in tree.ends] == given_
    prefixes = {sequence[:length] for sequence in given_ for length in range(1, len(sequence) + 1)}
    assert tree.tokens == len(prefixes)
    for node in tree.nodes:
        assert node.tokens
        firsts = [tree.nodes[child].tokens[0] for child in node.children]
        assert len(set(firsts)) == len(firsts)


@given(sequences, st.integers(1, 12))
def test_last_places_number_the_last_tokens(given_: Sequences, count: int) -> None:
    tree = grow(given_)
    token_at = {
        node.first + offset: (token, tree.path(number)[: node.depth + offset])
        for number, node in enumerate(tree.nodes)
        for offset, token in enumerate(node.tokens)
    }
    assert len(token_at) == tree.tokens
    for number, sequence in enumerate(given_):
        wanted = min(count, len(sequence))
        places = tree.last_places(number, wanted)
        begin = len(sequence) - wanted
        assert [token_at[place] for place in places] == [
            (sequence[at], sequence[:at]) for at in range(begin, len(sequence))
        ]


@given(sequences, rooms, sizes)
def test_every_node_is_computed_once_where_no_stem_is_too_short(
    given_: Sequences, room: int, size: int | None
) -> None:
    tree = grow(given_)
    pieces, stems = parts(divide(tree, room=room, saving=0, most_sequences=size))
    computed = [number for piece in pieces for number in piece.nodes]
    computed += [number for stem, _ in stems for number in stem.nodes]
    assert sorted(computed) == list(range(len(tree.nodes)))


@given(sequences, rooms, st.integers(0, 40), sizes)
def test_parts_hang_together_and_keep_to_their_room(
    given_: Sequences, room: int, saving: int, size: int | None
) -> None:
    tree = grow(given_)
    pieces, stems = parts(divide(tree, room=room, saving=saving, most_sequences=size))
    computed = {number for piece in pieces for number in piece.nodes}
    computed |= {number for stem, _ in stems for number in stem.nodes}
    assert computed == set(range(len(tree.nodes)))
    for stem, above in stems:
        chain = [*above, *stem.nodes]
        assert [tree.nodes[number].parent for number in chain] == [-1, *chain][: len(chain)]
        for piece in stem.pieces:
            top = tree.nodes[piece.nodes[0]].parent
            assert top == (chain[-1] if chain else -1)
            for number in piece.nodes[1:]:
                assert tree.nodes[number].parent in piece.nodes
            assert piece.length == sum(len(tree.nodes[number].tokens) for number in piece.nodes)
            single = not tree.nodes[piece.nodes[-1]].children and all(
                tree.nodes[number].children == [after] or saving
                for number, after in zip(piece.nodes, piece.nodes[1:], strict=False)
            )
            assert piece.length <= room or single
            assert size is None or piece.sequences <= size or single


def test_a_forced_cut_ends_a_stem() -> None:
    tree = grow([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2)])
    root = divide(tree, cuts={tree.ends[2]})
    assert not root.pieces
    (stem,) = root.stems
    assert tree.path(stem.nodes[-1]) == (1, 2)
    assert [piece.length for piece in stem.pieces] == [3]


def test_shots_are_a_stem_and_each_question_with_its_choices_a_piece() -> None:
    shots = tuple(range(100))
    questions = [tuple(range(1000 * number, 1000 * number + 30)) for number in range(1, 9)]
    tree = grow([(*shots, *question, choice) for question in questions for choice in range(4)])
    root = divide(tree)
    (stem,) = root.stems
    assert [tree.path(number) for number in stem.nodes] == [shots]
    assert [piece.length for piece in stem.pieces] == [34] * 8


@given(sequences, st.integers(1, 40), st.none() | st.integers(1, 5), st.integers(1, 20))
def test_batches_hold_every_piece_once_and_keep_to_their_limits(
    given_: Sequences, tokens: int, size: int | None, logits: int
) -> None:
    tree = grow(given_)
    counts = [len(node.tokens) for node in tree.nodes]
    pieces, _ = parts(divide(tree, room=8, saving=5, logits=counts))
    left = sorted(pieces, key=lambda piece: piece.length)
    taken: list[Chunk] = []
    while left:
        rows = take_batch(left, BatchLimits(tokens, logits, size, row=16))
        batch = [piece for row in rows for piece in row]
        assert batch
        taken += batch
        longest = max(sum(piece.length for piece in row) for row in rows)
        if len(batch) > 1:
            assert size is not None or len(rows) == 1 or longest * len(rows) <= tokens
            assert size is None or sum(piece.sequences for piece in batch) <= size
            assert sum(piece.logits for piece in batch) <= logits
    assert sorted(map(id, taken)) == sorted(map(id, pieces))


@given(sequences)
def test_in_a_row_each_token_sees_its_own_prefix_and_nothing_else(given_: Sequences) -> None:
    tree = grow(given_)
    root = divide(tree, room=10, saving=1000)
    left = sorted(root.pieces, key=lambda piece: piece.length)
    while left:
        check_sight(tree, take_batch(left, BatchLimits(40, 1000, row=30)))


def check_sight(tree: Tree, rows: list[list[Chunk]]) -> None:
    layout = lay_out(tree, rows)
    prefix = {
        node.first + offset: tree.path(number)[: node.depth + offset + 1]
        for number, node in enumerate(tree.nodes)
        for offset in range(len(node.tokens))
    }
    for ids, positions, until, places in zip(
        layout.ids, layout.positions, layout.seen_until, layout.places, strict=True
    ):
        for column, place in enumerate(places):
            seen = [other for other in range(column + 1) if until[other] > column]
            if place < 0:
                assert seen == [column]
                continue
            assert tuple(ids[other] for other in seen) == prefix[place]
            assert [positions[other] for other in seen] == list(range(len(seen)))


def test_common_counts_equal_tokens_in_front() -> None:
    assert common((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common((1,), (1, 2)) == 1
    assert common((), (1, 2)) == 0
    assert common((2,), (1, 2)) == 0


def test_rows_of_similar_pieces_have_few_gaps() -> None:
    shots = tuple(range(200))
    made = [tuple([1000 + number] * (20 + number % 23)) for number in range(200)]
    tree = grow([(*shots, *question) for question in made])
    (stem,) = divide(tree).stems
    left = sorted(stem.pieces, key=lambda piece: piece.length)
    gaps = total = 0
    while left:
        layout = lay_out(tree, take_batch(left, BatchLimits(512, 10**6)))
        gaps += sum(places.count(-1) for places in layout.places)
        total += sum(map(len, layout.places))
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
    groups = group(prompts)
    assert sorted(number for one in groups for number in one.members) == list(range(len(prompts)))
    for one in groups:
        first = prompts[one.members[0]]
        assert one.shared < min(len(prompts[number]) for number in one.members)
        assert all(common(first, prompts[number]) >= one.shared for number in one.members)


def test_prompts_of_different_shots_are_grouped_by_them() -> None:
    shots = {kind: tuple(range(1000 * kind, 1000 * kind + 100)) for kind in (1, 2)}
    prompts = [(*shots[1 + number % 2], number, number) for number in range(12)]
    prompts += [(5, 6, 7), (*shots[1][:3], 8)]
    found = [(one.shared, one.members) for one in group(prompts)]
    assert found == [(100, (0, 2, 4, 6, 8, 10)), (100, (1, 3, 5, 7, 9, 11)), (0, (12, 13))]
    assert group([shots[1]])[0].shared == 99
    assert group([shots[1]] * 5)[0].shared == 99


@given(st.lists(st.integers(11, 2000), min_size=1, max_size=40))
def test_prompts_of_a_lane_have_about_one_length(lengths: list[int]) -> None:
    whole = Group(10, tuple(range(len(lengths))))
    parts = by_length(whole, lengths)
    assert sorted(number for part in parts for number in part.members) == list(whole.members)
    for part in parts:
        tails = [lengths[number] - part.shared for number in part.members]
        assert max(tails) <= 2 * min(tails) + 64


@given(sequences, st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple))
def test_the_nearest_of_ordered_texts_shares_most_tokens(given_: Sequences, text: tuple[int, ...]) -> None:
    texts = sorted(given_)
    number = nearest(texts, text)
    assert number is not None
    assert common(texts[number], text) == max(common(one, text) for one in texts)
    assert nearest([], text) is None
