"""Describe a session without a language model: its name, description, summary and tags.

Titles that somebody wrote in the session come first: the agent's own, a pull request's, a plan's, a
document's, an issue's, a commit's. Then come sentences of requests. A term weighs by how many
messages (requests count twice), titles, recaps, last answers and files have it, so the best title
is about most of the session. The next best of another subject and the words that weigh most follow
it. Each sentence is the session's own, perhaps shortened. A result or a decision that a later
message takes back is left out, and what was only asked for is no result.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from math import log2
from statistics import fmean
from typing import NamedTuple

from indexerd.entries import ASKED, Facts
from indexerd.meta.model import Metadata
from indexerd.models.extractive import lexicon
from indexerd.models.extractive.sentences import (
    KEY_WORDS,
    TITLE_MAX,
    UNSPACED_BEGIN,
    WORD,
    clip,
    headline,
    key_words,
    meaning,
    plain,
    sentences,
    tickets,
    topics,
)
from indexerd.paths import basename
from indexerd.privacy.patterns import lazy_pattern
from indexerd.privacy.sanitize import clean_line
from indexerd.protocol.limits import NAME_MAX, SUMMARY_MAX, TAGS_MIN
from indexerd.search.query import stem

_ANSWER, _TYPED = 12, 12  # sentences that tell what was done; of a request that is no template
_GOALS, _DECISIONS, _TITLES, _FILES = 4, 8, 8, 8  # items of a summary
_RESULTS, _RESULTS_MAX, _FOR_ONE = 16, 32, 40  # results; sentences of answers for one more
_ITEM_MAX, _SENTENCE_MAX, _CHOICE_MAX = 240, 180, 160  # characters
_BEGIN_MAX, _END_MAX = 100_000, 300_000  # characters of messages
_RETRACTIONS = 100  # newest sentences that take something back
_FEW, _NEXT = 4, 0.4  # turns; of the best name's worth
_WORDS, _ROOM = 6, 24  # key words of a name; characters that are kept for them
_SMALL = 0.1  # share of the work, below which a title tells of a part only
_TOLD, _ASKED_MAX = 5, 300  # sentences of a description; characters of what was asked for
_SHORT, _WHOLE = 24, 90  # characters of "Research complete.", no result; bytes of a statement
_DIGIT = lazy_pattern(r"\d")
_SPEC = lazy_pattern(r"(?:^|[/\\])specs[/\\](?:\d{3}|\d{8}-\d{6})-([\w-]+)[/\\]")  # of Spec Kit
_OPENING, _CLOSING = 6, 3  # first sentences of a request, and of a last answer
_RANKED = 150  # key words
_HINT = 0.15  # worth of a last answer or a file name that has a term; of others 1
_REPEATED = 1.5  # weight of what several messages have, or a request
_PIECE = -2.0  # worth of a part of a sentence of Chinese
_SPECS = 8  # directories of specifications
_TITLE_WORTH = {"pr": 10.0, "plan": 3.2, "doc": 3.2, "spec": 2.4, "commit": 1.6, "issue": 1.4}
_MANY_COMMITS, _COMMIT_MAX = 3, 80  # commits that are told together; characters
_RECAP_WORTH = 6.0
_LABELS = {"pr": "Pull request", "issue": "Issue", "commit": "Commit", "doc": "Document"}


class _Sentence(NamedTuple):
    text: str
    terms: frozenset[str]
    message: int  # number of its message
    place: int  # in its message


class _Found(NamedTuple):
    """A sentence that may be shown; those of more worth come first."""

    worth: float
    sentence: _Sentence


class _Name(NamedTuple):
    """A text for a name."""

    worth: float
    text: str
    kind: str = ""  # of a title; "wish": of the user; "recap"


class _Turn(NamedTuple):
    """A request and the answers to it, as sentences."""

    request: list[_Sentence]
    answers: list[list[_Sentence]]


def _counts(messages: Iterable[Iterable[_Sentence]]) -> Counter[str]:
    """Count the messages that have each term."""
    terms = ({term for sentence in each for term in sentence.terms} for each in messages)
    return Counter(chain.from_iterable(terms))


def _turns(messages: Sequence[tuple[str, str]]) -> list[_Turn]:
    """Split messages into turns; of very long sessions only the beginning and the end."""
    turns, size = list[_Turn](), sum(len(text) for _, text in messages)
    left_out = range(_BEGIN_MAX, size - _END_MAX)
    at = 0
    for number, (role, text) in enumerate(messages):
        at += len(text)
        if at in left_out:
            continue
        lines = enumerate(sentences(text))
        found = [_Sentence(line, topics(line), number, place) for place, line in lines]
        if role == "user" or not turns:
            turns.append(_Turn(found if role == "user" else [], []))
        if role != "user":
            turns[-1].answers.append(found)
    return turns


class _Session:
    """A session's turns, and the weights of its terms."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._project = facts, _project(facts)
        self._turns = _turns(facts.messages)
        self._messages = [each for turn in self._turns for each in (turn.request, *turn.answers)]
        self._weights = self._weighed_terms()
        every = (sentence for message in self._messages for sentence in message)
        retracting = (s for s in every if lexicon.TAKEN_BACK.search(s.text))
        self._retractions = deque(retracting, _RETRACTIONS)
        self._as_result = {s: self._weighed(s) for t in self._turns for s in chain(*t.answers)}
        self._work = [  # about how much was done in each turn
            1 + sum(300 + sum(len(s.text) for s in answer) for answer in turn.answers)
            for turn in self._turns
        ]
        every_turn = (chain(turn.request, *turn.answers) for turn in self._turns)
        self._said = [frozenset(chain.from_iterable(s.terms for s in turn)) for turn in every_turn]

    def _weighed_terms(self) -> dict[str, float]:
        """Weigh terms by the messages, titles, recaps, last answers and files that have them."""
        facts, weights = self._facts, defaultdict[str, float](float)
        typed = ([s for s in t.request if not lexicon.PASTED.search(s.text)] for t in self._turns)
        last = (turn.answers[-1][:_CLOSING] for turn in self._turns if turn.answers)
        titles = (title for _, title in self.titles)
        paths = (path.removeprefix(facts.cwd) for path in facts.files_modified)
        for worth, counts in (
            (1, _counts(self._messages) + _counts(typed)),
            (1, Counter(chain.from_iterable(map(topics, titles)))),
            (1, Counter(topics(f"{facts.title}\n{_told(facts.recap)[0]}"))),
            (_HINT, _counts(last)),
            (_HINT, Counter(chain.from_iterable(map(topics, paths)))),
        ):
            for term, count in counts.items():
                weights[term] += worth * log2(1 + count)
        return weights

    def _weight(self, terms: frozenset[str]) -> float:
        """Return how central terms are: few strong ones count more than many weak ones."""
        return sum(self._weights.get(term, 0.5) for term in terms) / (4 + len(terms))

    @cached_property
    def titles(self) -> list[tuple[str, str]]:
        """The kinds and titles of what was written in the session, oldest first."""
        written = [(kind, _title(text)) for kind, text in self._facts.titles]
        paths = filter(None, map(_SPEC.search, self._facts.files_modified))
        named = dict.fromkeys(_title(re.sub("[-_]", " ", path[1])) for path in paths)
        specs = [("spec", title) for title in islice(named, _SPECS)]
        # A pull request often has the title of its first commit, which may be a specification's.
        last = sorted(written, key=lambda each: each[0] == "pr")
        found = {title: kind for kind, title in (*specs, *last)}
        every = dict.fromkeys((found[title], title) for _, title in (*written, *specs))
        return [(kind, title) for kind, title in every if len(topics(title)) > 1]

    def name(self) -> str:
        """Return the agent's title, or else the best of `_names`, and what it does not tell.

        An agent often takes its title from the first request alone. If that says little, or was a
        small part of the work, it is no name; else another subject, words and the project follow.
        """
        titled = plain(clean_line(self._facts.title, NAME_MAX)).strip(" ,;:：")  # noqa: RUF001 - wide
        titled = headline(titled) if len(titled) > TITLE_MAX else titled
        of_a_part = 0 < self._share(titled) < _SMALL
        if of_a_part or len(meaning(topics(titled))) < 2:  # noqa: PLR2004 - it says little
            titled = ""
        made = ((headline(each.text), each.text) for each in self._best_first)
        named = chain([(titled, titled)], made)  # names, with the texts that they are made of
        name, text = next(pair for pair in named if any(map(str.isalpha, pair[0])))
        name = self._with_another(name, topics(text), NAME_MAX - len(self._place(name)))
        place = self._place(name)
        return f"{self._with_words(name, NAME_MAX - len(place))}{place}"

    def _place(self, name: str) -> str:
        """Return the project in parentheses, "" if a name has it."""
        about, project = topics(self._project), self._project.lower()
        known = project in name.lower() or 2 * len(about & topics(name)) >= len(about) > 0
        return "" if known else f" ({self._project})"

    @cached_property
    def _best_first(self) -> list[_Name]:
        return sorted(self._names(), key=lambda each: -each.worth)

    def _with_another(self, name: str, known: frozenset[str], most: int) -> str:
        """Add the best other subject, with `most` characters in all: a written title, or a wish.

        A session of few turns has one subject. A wish leaves room for key words.
        """
        least = _NEXT * self._best_first[0].worth
        others = [each for each in self._best_first if each.kind and each.worth > least]
        others.sort(key=lambda each: (each.kind == "wish", -each.worth))
        for other in others if len(self._turns) >= _FEW else ():
            about, second = topics(other.text), headline(other.text)
            room = _ROOM * (other.kind == "wish")
            fits = len(name) + len(second) + 2 + room <= most
            if fits and 3 * len(about & known) < len(about):
                return f"{name}; {second}"
        return name

    def _with_words(self, name: str, most: int) -> str:
        """Add key words that a name does not have, with `most` characters in all.

        A word of one answer, or of what was pasted once, tells little.
        """
        known = topics(f"{name} {self._project} claude codex")
        known |= {stem(word) for word in WORD.findall(name.lower())}
        found, named = list[str](), name
        for word in self.key_words if len(self._turns) > 1 else ():
            about = topics(word)
            longer = f"{name} + {', '.join([*found, word])}"
            told = any(self._weights.get(term, 0) > _REPEATED for term in about)
            if told and not about & known and len(longer) <= most:
                found, named, known = [*found, word], longer, known | about
            if len(found) == _WORDS:
                break
        return named

    def _names(self) -> Iterator[_Name]:
        """Yield texts for a name, of which `headline` makes one."""
        for at, (kind, title) in enumerate(self.titles):  # later ones are often details
            worth = _TITLE_WORTH[kind] * 0.94**at
            if kind in ("plan", "doc", "spec"):
                share = self._share(title)
                worth *= max(share, 0.1) if kind == "spec" else 0.5 + 0.5 * share
            yield _Name(worth * self._weight(topics(title)), title, kind)
        told = _told(self._facts.recap)[0]
        for said in sentences(told)[:1] if ";" not in told else ():  # it lists several subjects
            subject = lexicon.LED_IN.sub("", said)
            if len(meaning(topics(subject))) > 1 and ": " not in subject:
                yield _Name(_RECAP_WORTH * self._weight(topics(subject)), subject, "recap")
        first = next((turn for turn in self._turns if turn.request), None)
        for turn, work in zip(self._turns, self._work, strict=True):
            share = min(1.0, len(self._work) * work / sum(self._work))  # of the mean
            for sentence in turn.request[:_OPENING]:
                worth = 0.7 if turn is not first else 1.0
                worth *= (0.5 + 0.5 * share) * 0.85**sentence.place
                terms = topics(title := headline(sentence.text))
                fit = _fit(sentence.text, title, len(meaning(terms)))
                wish = "wish" * (fit >= 1 and not sentence.place and ": " not in title)
                yield _Name(worth * fit * self._weight(terms), sentence.text, wish)
        place = self._project or basename(clean_line(self._facts.cwd[-400:], 400))
        yield _Name(0.01, f"Conversation in {place or 'no directory'}")

    def _share(self, title: str) -> float:
        """Return how much of the work was in turns that have half of a title's terms."""
        about = topics(title)
        turns = zip(self._work, self._said, strict=True)
        least, whole = max(2, len(about) / 2), sum(self._work) or 1
        return sum(work for work, said in turns if len(about & said) >= least) / whole

    @cached_property
    def key_words(self) -> list[str]:
        """The words that tell the session's subject, the best first."""
        words = key_words((" ".join(s.text for s in each) for each in self._messages), _RANKED)

        def worth(word: str) -> float:
            mean = fmean(self._weights.get(term, 0) for term in topics(word))
            return mean + _PIECE * bool(UNSPACED_BEGIN.match(word))

        return sorted(words, key=worth, reverse=True)

    def goals(self) -> list[str]:
        """Return plans, the first request, and the most central later ones, in order."""
        asked: list[_Found] = []
        for turn in self._turns:
            opening = [s for s in turn.request[:_OPENING] if len(meaning(s.terms)) > 1]
            typed = [s for s in opening if not lexicon.PASTED.search(s.text)]
            if fit := typed or opening:
                best = max(fit, key=lambda s: (not s.place, self._weight(s.terms)))
                asked.append(_Found(self._weight(best.terms) * (1.0 if typed else 0.3), best))
        best_first = [*asked[:1], *sorted(asked[1:], key=lambda each: -each.worth)]
        plans = [title for kind, title in self.titles if kind == "plan"][:_GOALS]
        return [*plans, *_shown(_distinct(best_first, _GOALS))]

    def decisions(self) -> list[str]:
        """Return options that the user picked, other choices of theirs, and those of the agent."""
        return _shown(_distinct(self._lasting(self._choices()), _DECISIONS))

    def _choices(self) -> Iterator[_Found]:
        for number, turn in enumerate(self._turns):
            # The first request says what to do, and a long one has rules.
            typed = turn.request if number and len(turn.request) <= _TYPED else []
            short = [s for s in typed if len(s.text) < _CHOICE_MAX]
            chosen = [s for s in short if _states(s, lexicon.ANSWERED)]
            chosen += [s for s in chain(*turn.answers) if _states(s, lexicon.CHOSEN)]
            yield from (_Found(self._weight(s.terms), s) for s in chosen)

    def results(self) -> list[str]:
        """Return the strongest sentences of answers, oldest first."""
        found, longest = list[_Found](), max(self._work, default=1)
        for turn, work in zip(self._turns, self._work, strict=True):
            for answer in turn.answers:
                share = (work / longest) ** 0.2 * (1.0 if answer is turn.answers[-1] else 0.5)
                found += [_Found(share * self._as_result[s] * _detail(s.text), s) for s in answer]
        most = min(_RESULTS_MAX, _RESULTS + len(found) // _FOR_ONE)
        return _shown(_distinct(self._lasting(found), most))

    def outcome(self, most: int) -> list[str]:
        """Return the best sentences of last answers, if possible of parts with equal work."""
        found, part_of, before = list[_Found](), dict[int, int](), 0
        longest, whole = max(self._work, default=1), sum(self._work)
        for turn, work in zip(self._turns, self._work, strict=True):
            share = (work / longest) ** 0.3 * (1.2 if turn is self._turns[-1] else 1.0)
            part, before = int(most * (before + work / 2) / whole), before + work
            for s in turn.answers[-1][:_ANSWER] if turn.answers else ():
                done = bool(lexicon.DONE.search(s.text))
                if len(meaning(s.terms)) > 2 - done and len(s.text) > _SHORT:
                    worth = share * (1.3 if done else 0.5) * 0.9**s.place
                    worth *= 0.2 if lexicon.BARE.match(s.text) else 1.0
                    worth *= 1.2 if s.text[-1] in ".。" else 1.0
                    found.append(_Found(worth * self._as_result[s], s))
                    part_of[s.message] = part
        best_first = [*self._lasting(found)]
        of_parts = {part_of[each.sentence.message]: each for each in reversed(best_first)}
        first = sorted(of_parts.values(), key=lambda each: -each.worth)
        return _shown(_distinct([*first, *best_first], most))

    def _weighed(self, sentence: _Sentence) -> float:
        """Weigh a sentence of an answer; 0 for announcements, questions and procedure."""
        text = sentence.text
        if text[-1] in "?？:：" or not meaning(sentence.terms):  # noqa: RUF001 - wide
            return 0.0
        if lexicon.SPEAKING.match(text) or lexicon.COMING.search(text):
            return 0.0
        worth = 1.4 if lexicon.DONE.search(text) else 1.0
        worth *= 0.6 if lexicon.OFFER.search(text) or lexicon.MUSING.search(text) else 1.0
        return worth * self._weight(sentence.terms) * 0.985 ** min(sentence.place, 20)

    def _lasting(self, found: Iterable[_Found]) -> Iterator[_Found]:
        """Yield the best first, without what a later message takes back."""
        worthy = sorted((each for each in found if each.worth > 0), key=lambda each: -each.worth)
        return (each for each in worthy if not self._taken_back(each))

    def _taken_back(self, found: _Found) -> bool:
        """Whether a later message takes back a statement that shares two of its terms."""
        _, sentence = found
        later = (other for other in self._retractions if other.message > sentence.message)
        return any(len(sentence.terms & other.terms) > 1 for other in later)

    @cached_property
    def written(self) -> list[str]:
        """The pull requests, issues, commits and documents, the most central first."""
        labelled = [each for each in self.titles if each[0] in _LABELS]
        labelled.sort(key=lambda each: -_TITLE_WORTH[each[0]] * self._weight(topics(each[1])))
        return [f"{_LABELS[kind]}: {title}" for kind, title in labelled]

    def written_in_short(self, name: str) -> Iterator[str]:
        """Yield the most central pull request or issue and, without one, the commits."""
        made = [line for line in self.written if not line.startswith(_LABELS["doc"])]
        new = [line for line in made if line.partition(": ")[2] not in name]
        asked = [line for line in new if not line.startswith(_LABELS["commit"])]
        if asked or len(new) < _MANY_COMMITS:
            yield from new[:2]
            return
        best = [line.partition(": ")[2] for line in new[:_MANY_COMMITS]]
        told = [title for _, title in self.titles if title in best]
        count = sum(kind == "commit" for kind, _ in self.titles)
        listed = "; ".join(clip(title, _COMMIT_MAX) for title in told)
        yield f"{count} commits{', such as' if count > len(told) else ':'} {listed}"

    def next_steps(self) -> list[str]:
        """Return what the last answer calls open, or the request that has no answer."""
        last = self._turns[-1] if self._turns else _Turn([], [])
        asked = [] if last.answers else last.request[:1]
        said = (s for s in chain(*last.answers[-1:]) if s.text[-1] not in "?？")  # noqa: RUF001 - wide
        found = (s for s in chain(asked, filter(_is_open, said)) if s.terms)
        return [clip(s.text, _ITEM_MAX) for s in islice(found, 3)]


def _fit(text: str, title: str, subject: int) -> float:
    """Return how well a sentence names a session: a wish 1 or more, pasted output little.

    `title` is made of it, and has `subject` terms of a subject.
    """
    wish = lexicon.WISH.match(text)
    if subject < 2:  # noqa: PLR2004 - "commit this" says nothing, "fix the parser" little
        return 0.1 if subject and wish else 0.03
    fit = 1.0 if subject > 2 else 0.8  # noqa: PLR2004 - as above
    fit *= 0.2 if lexicon.PASTED.search(title) or (title.isascii() and title.isupper()) else 1.0
    fit *= 0.6 if lexicon.POINTING.search(title) else 1.0
    if wish:
        return 1.25 * fit
    return fit * (0.8 if lexicon.MUSING.search(text[:160]) else 1.0)


def _is_open(sentence: _Sentence) -> bool:
    return bool(lexicon.NEXT.search(sentence.text))


def _detail(text: str) -> float:
    """Return how much a sentence tells: a whole statement, with a figure."""
    return min(1.0, len(text.encode()) / _WHOLE) * (1.3 if _DIGIT.search(text) else 1.0)


def _title(text: str) -> str:
    """Make a title of a written one: "feat(parser): add x" is "Parser: add x"."""
    line = clean_line(text.partition("\\n")[0], 400)
    found = lexicon.TYPE.match(line)
    subject, scope = line[found.end() if found else 0 :], found[1] or "" if found else ""
    return headline(subject if topics(scope) <= topics(subject) else f"{scope}: {subject}")


def _states(sentence: _Sentence, cue: re.Pattern[str]) -> bool:
    """Whether a sentence with a cue states a choice, and neither asks nor proposes one."""
    text = sentence.text
    if not cue.search(text) or len(meaning(sentence.terms)) <= 2:  # noqa: PLR2004 - "do that"
        return False
    return not (text[-1] in "?:" or lexicon.SPEAKING.match(text) or lexicon.OFFER.search(text))


def _distinct(found: Iterable[_Found], most: int) -> list[_Found]:
    """Return the first `most` sentences that do not repeat an earlier one, in turn order."""
    kept: list[_Found] = []
    for each in found:
        if len(kept) >= most:
            break
        terms = each.sentence.terms
        others = (other.sentence.terms for other in kept)
        if not any(len(terms & other) >= 0.7 * min(len(terms), len(other)) for other in others):
            kept.append(each)
    return sorted(kept, key=lambda each: (each.sentence.message, -each.worth))


def _shown(found: Iterable[_Found]) -> list[str]:
    return [clip(each.sentence.text.rstrip(":："), _ITEM_MAX) for each in found]  # noqa: RUF001 - wide


def describe(facts: Facts) -> Metadata:
    """Describe a session by its facts; the result is valid for any facts."""
    session = _Session(facts)
    name, goals, decisions = session.name(), session.goals(), session.decisions()
    wish = goals[0] if goals else ""
    results = (line for line in session.results() if line not in decisions)
    told, coming = _told(facts.recap)
    asked, done = ([told[len(ASKED) :]], []) if told.startswith(ASKED) else ([], [told])
    base = facts.cwd.rstrip("/") + ("\\" if "\\" in facts.cwd else "/")
    paths = [path[:600].removeprefix(base) for path in facts.files_modified or facts.files_read]
    paths.sort(key=lambda path: path.startswith("/"))  # those in other directories come last
    files = [clean for path in paths[:_FILES] if (clean := plain(clean_line(path, 160)))]
    listed = ", ".join(f"`{clip(file, 100)}`" for file in files)
    sections = {
        "## Goal": [*asked, *goals] or [name],
        "## Key Decisions": decisions,
        "## Outcome": [*filter(None, done), *session.written[:_TITLES], *results],
        "## Next Steps": [coming] if coming else session.next_steps(),
        "## Files": [f"{'Changed' if facts.files_modified else 'Read'}: {listed}"] if files else [],
    }
    while len(summary := _joined(sections)) > SUMMARY_MAX:
        sections["## Outcome"].pop()
    return Metadata(
        name=name,
        description=_description(session, name, told, wish),
        summary=summary,
        tags=_tags(facts, session, files),
    )


def _joined(sections: Mapping[str, Sequence[str]]) -> str:
    """Write the sections that have items as Markdown."""
    return "\n\n".join("\n- ".join([head, *items]) for head, items in sections.items() if items)


def _description(session: _Session, name: str, told: str, goal: str) -> str:
    """Return what the agent's own model told, or titles and results, or what was asked for."""
    if told and not told.startswith(ASKED):
        return told
    lines = [*session.written_in_short(name)]
    lines += session.outcome((_TOLD - 2 if told else _TOLD) - len(lines))
    goal = ASKED + goal if goal else name
    wanted = [_sentence(told or goal, _ASKED_MAX)] if told or not lines else []
    return " ".join([*wanted, *map(_sentence, lines)])


def _told(recap: str) -> tuple[str, str]:
    """Split what the agent's own model told of a session: what was done, and what comes next."""
    done, *coming = re.split(lexicon.COMES_NEXT, plain(recap), maxsplit=1)
    return done.strip(), clip(" ".join(coming).strip(), _ITEM_MAX)


def _project(facts: Facts) -> str:
    """Return the directory that most of the work was in, "" if its name says nothing."""
    here, tops = _folders(f"{facts.cwd}/")[-1:], Counter[str]()
    paths = facts.files_modified or facts.files_read or (facts.cwd,)
    for path in paths:
        tops.update((facts.cwd in path and here) or _folders(path)[:1])
    top, count = next(iter(tops.most_common(1)), ("", 0))
    return plain(clean_line(top, 40)) if 2 * count > len(paths) else ""


def _folders(path: str) -> list[str]:
    """Return the directories below a person's own that say something; none of hidden ones."""
    parts = re.split(r"[/\\]+", lexicon.HOME.sub("", path))[:-1]
    if any(part[:1] == "." for part in parts):
        return []
    return [part for part in parts if part and not lexicon.PLACE.fullmatch(part)]


def _sentence(text: str, most: int = _SENTENCE_MAX) -> str:
    short = clip(plain(text), most).rstrip(" ,;:")
    return short if short[-1:] in ".!?…。！？" else f"{short}."  # noqa: RUF001 - wide


def _tags(facts: Facts, session: _Session, files: Sequence[str]) -> list[str]:
    """Return tickets, key words and files; no tag begins with a digit."""
    typed = "\n".join(text[:8000] for role, text in facts.messages[:400] if role == "user")
    names = [basename(file).lower() for file in files]
    words = [
        *tickets(typed)[:3],
        *map(str.lower, session.key_words[:KEY_WORDS]),
        *[name for name in names if name not in lexicon.EVERYWHERE.split()][:3],
    ]
    tags = dict.fromkeys(tag for word in words if (tag := plain(word)[:40].strip()))
    kept = [tag for tag in tags if not tag[0].isdigit()][:10]
    more = [word for word in ("conversation", "agent session", "untagged") if word not in kept]
    return kept + more[: max(0, TAGS_MIN - len(kept))]
