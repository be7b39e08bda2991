"""The tree as a story: prompts, the work between them folded, deeper only at a fork."""

from hypothesis import given, settings
from hypothesis import strategies as st

from indexerd.sessions.state import ROOT, SessionState
from indexerd.web.story import Beat, Node, Room, Story, node_of, story_of
from tests.sessions.tree_sessions import reader, said, session, state_of


def cut(text: str, most: int) -> str:
    """The first `most` characters of a text."""
    return text[:most]


def nodes_of(state: SessionState, data: bytes) -> dict[int, Node]:
    """A node for each row that a story uses."""
    read, room = reader(state, data), Room(cut, 500)
    return {row: node_of(state, row, read(row), room) for row in state.entries()}


def session_story(*entries: bytes, gists: dict[str, str] | None = None) -> Story:
    """The story of a session with these entries."""
    data = session(*entries)
    state = state_of(data)
    named = {state.index[tip]: (text, "agent") for tip, text in (gists or {}).items()}
    return story_of(state, nodes_of(state, data), state.labels, named)


def story_ids(story: Story, beat: Beat) -> list[str]:
    return [story.nodes[place].id for place in range(beat.first, beat.last + 1)]


def shape(story: Story) -> list[tuple[str, int, list[str]]]:
    """Kind, depth and entries of every beat."""
    return [(beat.kind, beat.depth, story_ids(story, beat)) for beat in story.beats]


def test_a_chain_stays_flat_and_only_a_fork_goes_deeper() -> None:
    """S1.29: depth grows at a fork, and the gist is at the beginning of a branch."""
    entries = (
        said("a", None, "user", "Where to?"),
        said("b", "a", "assistant", "Two ways."),
        said("c", "b", "user", "Left."),
        said("d", "c", "assistant", "Dead end."),
        said("e", "b", "user", "Right."),
        said("f", "e", "assistant", "There."),
        said("g", "f", "user", "On."),
    )
    story = session_story(*entries, gists={"d": "Left was a dead end."})
    assert shape(story) == [
        ("ask", 0, ["a"]),
        ("work", 0, ["b"]),
        ("ask", 1, ["c"]),
        ("work", 1, ["d"]),
        ("ask", 1, ["e"]),
        ("work", 1, ["f"]),
        ("ask", 1, ["g"]),
    ]
    assert [(beat.begins, beat.gist) for beat in story.beats if beat.begins or beat.gist] == [
        (True, "Left was a dead end."),
        (True, ""),
    ]
    assert [beat.active for beat in story.beats] == [True, True, False, False, True, True, True]
    assert [node.id for node in story.nodes if node.active] == ["a", "b", "e", "f", "g"]


@st.composite
def trees(draw: st.DrawFn) -> list[bytes]:
    """Entries with any parents, including later and unknown ones, and repeated ids."""
    many = draw(st.integers(1, 25))
    ids = [str(draw(st.integers(0, many))) for _ in range(many)]
    roles = st.sampled_from(["user", "assistant", "toolResult"])
    above = st.one_of(st.none(), st.integers(0, many + 2).map(str))
    return [
        said(session_id, draw(above), draw(roles), "x", at=draw(st.integers(0, 50)))
        for session_id in ids
    ]


@settings(max_examples=80, deadline=None)
@given(trees())
def test_every_entry_is_in_one_beat(entries: list[bytes]) -> None:
    """S1.7: with any parents each entry appears once, below its parent, in one beat."""
    story = session_story(*entries)
    places = [place for beat in story.beats for place in range(beat.first, beat.last + 1)]
    assert places == list(range(len(story.nodes)))
    assert len({node.id for node in story.nodes}) == len(story.nodes)
    depths = {at: beat.depth for beat in story.beats for at in range(beat.first, beat.last + 1)}
    for place, node in enumerate(story.nodes):
        assert ROOT <= node.above < place
        if node.above != ROOT:
            assert depths[place] - depths[node.above] in (0, 1)
