"""Metadata of a session without a model: `extract(facts)`, what `local/extractive` answers.

In: what was said, oldest first and redacted, and what is known of files and tools. Out: valid
`Metadata` for any input. Its sentences were said in the session (shortened at most) or stand in
the summary that it continues; our own words are labels such as "Asked:". It never invents. What
surprised us: half of what users type is no request ("ok, go on"), and half of what agents say
tells no result but announces work ("Let me look at..."); a few words tell them apart.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from indexerd.core import phrases
from indexerd.core.clean import clean_line, clean_text
from indexerd.core.phrases import clip, dense, plain, topic_runs, word_set
from indexerd.events import Facts
from indexerd.meta import SUMMARY_MAX, TAGS_MIN, Metadata

TEXT_MAX = 120_000  # characters looked at
ITEM_MAX = 240  # of one bullet
_HEAD, _TAIL = 16_000, 8_000  # of one message, in characters
_OPENING, _LATEST = 20, 500  # messages: the first ones, and the last ones
_LEAST = 12  # characters of a sentence that tells something
_NOTHING = "Nothing explicit was found."
_ASKING, _LEADING_ON = ("?", "\uff1f"), (":", "\uff1a")


def _pattern(text: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    joined = "".join(line.strip() for line in text.split("\n"))
    return re.compile(joined.replace("'", "['\u2019]"), flags)


def _cue(words: str) -> re.Pattern[str]:
    """What gives a `Line.low` away: words `||` parts of scripts without spaces."""
    spaced, _, unspaced = words.partition("||")
    return _pattern(rf"\x20(?:{spaced})(?!\w)|{unspaced}", 0)  # a space first is much quicker


_PADDING = _pattern(r"""(?:(?:
    (?:hi|hello|hey|hallo|moin|guten \w+|good (?:morning|day)|bonjour|salut|hola|ciao|buen[oa]s \w+)
    (?: (?:there|all|team|claude|pi|codex|zusammen|again))?(?=[\s,!.:;-])
    |(?:great|perfect|cool|nice|good|right|no|yes|yeah|sure|ja|nein|gut|super|prima|oui|non|s[ií]
    |vale|thanks|danke|merci|gracias|sorry|something else|(?:new|next) (?:task|topic))(?=[,!.:;])
    |(?:ok(?:ay)?|alright|so+|now|then|also|and|but|btw|by the way|actually|nun|jetzt|alors|ahora
    |please|pls|plz|kindly|just|maybe|bitte|mir|uns|mal|por favor|stp|svp|would you mind|try to
    |(?:could|can|would|will) (?:you|we|u)|how about (?:you|we)|go ahead and|i(?:'ll| will|'ve)
    |i(?:'d| would|'ll) (?:like|love)(?: (?:for )?you)?(?: to)?|i think|let(?:'?s| us| me)
    |i (?:want|need|wish)(?: you)?(?: to)?|i(?:'m| am) (?:trying|going|looking|hoping) to
    |(?:we|you) (?:need|want|have|should|must|could)(?: to)?|(?:your|the|my) (?:task|goal) is to
    |help (?:me|us)(?: to)?|make it so(?: that)? we|it would be (?:nice|good|great) to|kannst du
    |the user (?:wants?|wanted|asked)(?: \w+)? to|there(?:'s| is| are)|es gibt|würdest du|lass uns
    |i (?:have|see|found|noticed|get|keep getting)|k[oö]nn?te?(?:st|n)? (?:du|sie|wir|ihr)
    |ich (?:möchte|will|brauche|habe)(?:, dass du)?|wir (?:müssen|sollten|wollen|haben)|tu peux
    |(?:peux|pourrais)-tu|(?:pouvez|pourriez)-vous|s'il (?:te|vous) pla[iî]t|il (?:faut|y a)
    |je (?:veux|voudrais)|j'aimerais|puedes|podrías|quiero|necesito|hay|puoi|potresti
    |continue from [0-9a-f-]{36}(?: and)?)(?=[\s,:])
    |请[你您]?|帮我|帮忙|麻烦[你您]|[你您]好|我想要?|我需要|能不能|好的|谢谢|继续|こんにちは|すみません
    |ありがとう(?:ございます)?|続けて(?:ください)?)[\s,;:.!、。\uff0c\uff01\u2013\u2014-]*){0,8}""")
_POLITE_END = _pattern(r"""(?:[\s,]+(?:please|pls|thanks|thank you|thx|bitte|danke|merci|gracias
    |s'il (?:te|vous) pla[iî]t|stp|svp|por favor)|[,、\uff0c]?谢谢|吧|を?お願いします|ください
    |(?<=[ァ-ヶー一-鿿]{2})して(?:ください|ほしい)|\s?해\s?(?:주세요|줘))[\s.!?。\uff01\uff1f]*$""")
_ARTICLE = _pattern(r"""(?:the|an?|der|die|das|den|dem|ein(?:e[nmr]?)?|les?|la|une?|el|los|las)\s
    (?!(?:\S+\s){1,2}(?:is|are|was|were|has|ist|sind|hat|est|sont|es|está)\s)""")
_PROBLEM = _pattern(r"(?:there(?:'s| is| are)|(?:we|i) (?:have|see)) (?=(?:an?|two|some) )")
_DO_IT = _pattern(r"(?:please |(?:can|could) you (?:please )?)?([a-z]+) (?:it|them|this|that)\b")
_VERBS = word_set("""add analyze build change check clean convert create debug delete design draft
    document drop explain extract find fix handle implement improve investigate make merge migrate
    move refactor remove rename replace review rewrite run set solve split test update write""")
_IT = {"it", "this", "that", "them"}
_PATH = re.compile(r"(?<!\S)@?(?:[\w.~@:-]*/){2,}?((?:[a-z]+/(?=\d))?[\w.@-]+)(?![\w/])")
_SETTING = _pattern(r"\s*(?:i'm|i am|we're|we are) (?:working|building|using)|\s*(?:i|we) use ")
_DECIDED = _cue(r"""decided|decision(?::| is| was)|cho(?:se|osing|sen)|opt(?:ed|ing) (?:for|to)
    |(?:\w+'ll|will) use|(?:going|go|went) with|settl(?:ed?|ing) on|let(?:'s| us) (?:use|keep|drop)
    |agreed|the (?:fix|solution|plan) (?:is|was)|root cause (?:is|was)|stick(?:ing)? with|ruled out
    |switch(?:ed|ing)? (?:\w+ )?(?:to|from)|instead of|we should(?:n't)?|we won't|rejected|geeinigt
    |beschlossen|entschieden|(?:an)?statt|wir (?:nehmen|verwenden)|nehmen wir|umgestellt auf|choisi
    |décid\w+|utilisons|au lieu de|decid(?:ido|imos)|elegimos|vamos a usar|en (?:lugar|vez) de
    ||ことにし|に決め|を採用|にします|方針|决定|采用|改用|而不是""")
_ADVISED = _cue(r"""should (?:not )?(?:be|use|stay|live|go)|prefer|rather than|instead|sollten
    |recommend|suggest|no longer|replac(?:ed?|ing)\b.{1,60}\b(?:with|by)|stattdessen|plutôt que
    |devrions|la (?:cause|causa|solution|solución)|deberíamos|(?:die )?ursache (?:ist|war)
    ||代わりに|べき|应该|建议|原因""")
_ORDERED = _pattern(r"""\s(?:(?:yes|no|ja|nein|oui|non)[,:.]?\s|[^:]{1,20}:\s)?
    (?:use|keep|cap|inject|store|avoid|retry|limit|nimm|verwende|utilise|usa)\s""")
_CHOICE = _cue(r"""(?:should (?:we|i|it)|which|what about|how (?:do|should) (?:we|i)|sollt?en wir
    |welche\w*|was ist mit|faut-il|quel(?:le)?|deberíamos|cuál)\b.*\?||どう|哪个|怎么""")
_RESULT = _cue(r"""fixed|added|implemented|created|wrote|updated|removed|renamed|moved|migrated
    |green|refactored|deployed|merged|committed|pushed|resolved|completed?|done|finished|work(?:s|ing)
    |pass(?:e[sd])?|restored|verified|confirmed|shipped|rolled back|installed|turned out|changed
    |replaced|extracted|split|behoben|korrigiert|hinzugefügt|umgesetzt|erledigt|fertig|erstellt
    |geändert|läuft|laufen|gelöst|(?:corrig|ajout|cré|termin)é\w*|résolu|pasan
    |(?:corregi|añadi|crea|actualiza)d\w*||しました|完了|済み|完成|修复|成功|已""")
_PLAN = _pattern(r"""\s*(?:(?:ok(?:ay)?|now|first|next|then|good|great|perfect|also|so|jetzt|zuerst
    |ahora)[\s,.!:]+)*(?:(?:let me|let's|i'll|i will|i'm (?:going|now)|next(?=[ ,:])|looking at
    |i (?:need|want|have) to|we (?:need|still)|now (?:i|add|update|create|let|check|the tests)
    |checking|reading|waiting|ich (?:werde|schaue|lese|prüfe|sehe)|als nächstes|lass mich
    |je vais|laisse[sz]?-moi|voy a|déjame)(?!\w)|让我|接下来|我将|次に|まず|確認します)""")
_OPEN = _cue(r"""remain(?:s|ing)|todo|next (?:steps?|up|is)|still (?:need|ha[vs]|to|missing|open)\w*
    |not yet|left to|follow-?ups?|open (?:question|issue|point)s?|pending|blocked|noch (?:offen|zu)
    |als nächstes|fehlt noch|reste à|pendiente\w*||残り|未完|未対応|接下来|还需|下一步""")
_CLOSING = word_set("""thank thanks you thx ty great perfect nice cool ok okay good super danke
    prima gut passt merci gracias lgtm done bye that's it is all a lot very much 谢谢 ありがとう""")


def _topics(runs: list[list[str]]) -> set[str]:
    """Topic words, in one form each."""
    return {word.removesuffix("s") for run in runs for word in run}


class Line(NamedTuple):
    """A sentence, in small letters too, its topic words, the sentence after it, and its place."""

    text: str
    low: str
    runs: list[list[str]]
    after: str
    turn: int
    place: int
    user: bool


Turns = Sequence[Sequence[Line]]
Files = dict[str, list[str]]


def extract(facts: Facts) -> Metadata:
    """Describe a session from its facts alone; always the same for the same facts."""
    turns = _read(facts.messages)
    asks = _asks(turns)
    main = _main(asks, turns)
    before = _sections(facts.previous_summary or "")
    lead, results = _results(turns, [f"Earlier: {one}" for one in before["outcome"][-2:]])
    decisions = _merged(before["key decisions"], _decisions(turns, main), 6, 6)
    steps = _steps(turns)
    files = {
        "Changed": _paths(facts.files_modified, facts.cwd),
        "Read": _paths(facts.files_read, facts.cwd),
    }
    wanted = before["goal"][:1] + ([_task(main)] if main else [])
    name = _name(wanted, turns, facts, files)
    sections = {
        "Goal": _merged(before["goal"], _goal(asks, main), 1, 3) or [name],
        "Key Decisions": decisions or [_NOTHING],
        "Outcome": results or [_NOTHING] * (not steps),
        "Next Steps": steps,
        "Files": [
            f"{label}: {_listed([f'`{clip(one, 100)}`' for one in paths], 8)}"
            for label, paths in files.items()
            if paths
        ],
    }
    users = sum(role == "user" for role, _ in facts.messages)
    return Metadata(
        name=name,
        description=_description([*wanted, ""][0], lead, steps, users, files),
        summary="\n\n".join(
            "\n- ".join([f"## {title}", *items]) for title, items in sections.items() if items
        )[:SUMMARY_MAX],
        tags=_tags(facts, turns, files),
    )


def _read(messages: Sequence[tuple[str, str]]) -> Turns:
    """Sentences of each message that has any; where there is too much, the middle is left out."""
    places = list(range(len(messages)))
    turns: list[list[Line]] = []
    left = TEXT_MAX
    for at in places[:_OPENING] + places[_OPENING:][: -_LATEST - 1 : -1]:
        role, text = messages[at]
        if len(text) > _HEAD + _TAIL:
            text = f"{text[:_HEAD]}\n\n{text[-_TAIL:]}"
        if (left := left - len(text)) < 0:
            break
        user = role == "user"
        said = phrases.sentences(text, headings=user)
        both = enumerate(zip(said, [*said[1:], ""], strict=False))
        turns += [[Line(a, f" {a.lower()}", topic_runs(a), b, at, n, user) for n, (a, b) in both]]
    return sorted((turn for turn in turns if turn), key=lambda turn: turn[0].turn)


def _unpadded(text: str) -> str:
    """Leave greetings, politeness and articles out; addresses and paths keep their last part."""
    text = plain(text).lstrip("¿¡@ ")
    if "/" in text:
        text = _PATH.sub(r"\1", text)
    text = _PADDING.sub("", text, count=1) or text
    text = text[:-40] + _POLITE_END.sub("", _POLITE_END.sub("", text[-40:]))
    article = _ARTICLE.match(text)
    return text[article.end() :] if article and " " in text[article.end() :] else text


def _is_request(line: Line) -> bool:
    """Say whether a sentence asks for, or reports, something that one could look for later."""
    bare = _unpadded(line.text)
    found, spoken = _topics(topic_runs(bare)), phrases.words(bare)
    if len(found) > 1 or dense(bare):
        return len(bare) * 2 >= _LEAST
    ordered = bool(spoken) and spoken[0] in _VERBS and not {*spoken[1:2]} <= _IT
    polite = len(line.text) - len(bare) >= _LEAST
    return ordered or any(polite or re.search(r"[\d._/]", word) for word in found)


def _asks(turns: Turns) -> list[Line]:
    """The request of each of the user's messages that has one; else what has a topic at all."""
    mine = [turn for turn in turns if turn[0].user]
    firm = [[one for one in turn[:40] if _is_request(one)] for turn in mine]
    best = [min(turn, key=lambda one: bool(_SETTING.match(one.low))) for turn in firm if turn]
    return best or [turn[0] for turn in mine if turn[0].runs]


def _main(asks: Sequence[Line], turns: Turns) -> Line | None:
    """The first request, unless nobody came back to it and most of the session is on another."""
    heard = Counter(w for turn in turns[2:] for w in {w for one in turn for w in _topics(one.runs)})

    def echo(ask: Line) -> int:
        return max((heard[word] for word in _topics(ask.runs)), default=0)

    best = max(asks, key=echo, default=None)
    moved = best and len(asks) > 3 and not echo(asks[0]) and 2 * echo(best) > len(turns)  # noqa: PLR2004 - too few to tell
    return best if moved else next(iter(asks), None)


def _task(ask: Line) -> str:
    """The request; "There is an X. Please fix it." is the request to fix the X."""
    problem, order = _PROBLEM.match(ask.text), _DO_IT.match(ask.after)
    if problem and order and order[1].lower() in _VERBS:
        thing = re.sub(r"^an?\s", "the ", ask.text[problem.end() :], flags=re.IGNORECASE)
        return f"{order[1]} {thing}"
    return ask.text


def _name(wanted: Iterable[str], turns: Turns, facts: Facts, files: Files) -> str:
    """Headline of the first text that gives one: requests, errors, answers, files, anything."""
    lines = list(itertools.chain.from_iterable(turns))
    for text in itertools.chain(
        wanted,
        (phrases.error_line(text[:_HEAD]) for _, text in facts.messages[:_OPENING]),
        [one.text for one in lines if sum(map(len, one.runs)) > 1][:1],
        [f"Changes to {_base(one)}" for one in files["Changed"][:1]],
        [one.text for one in lines[:_OPENING] if one.runs],
        [f"Conversation: {one.text}" for one in lines if one.runs][:1],
        [f"Conversation in {one}" for one in [_base(clean_line(facts.cwd[-400:], 400))] if one],
    ):
        name = phrases.headline(_unpadded(text))
        if (" " in name or dense(name)) and any(char.isalpha() for char in name):
            return name
    return "Conversation without a topic"


def _tells(line: Line) -> bool:
    """Say whether a sentence is the agent's, and neither asks nor announces."""
    told = not line.user and len(line.text) >= _LEAST and bool(line.runs)
    return told and not line.text.endswith(_LEADING_ON + _ASKING) and not _PLAN.match(line.low)


def _distinct(texts: Iterable[str], limit: int) -> list[str]:
    """The first of the texts that have nearly the same topics; at most `limit`."""
    found: list[tuple[str, set[str]]] = []
    for text in texts:
        mine = _topics(topic_runs(text)) or {text}
        if len(found) < limit and not any(
            5 * len(mine & other) > 4 * min(len(mine), len(other)) for _, other in found
        ):
            found.append((text, mine))
    return [text for text, _ in found]


def _best(scored: Sequence[tuple[float, Line]], limit: int) -> list[str]:
    """Those with the highest scores, in the order in which they were said."""
    ranked = sorted(scored, key=lambda one: (-one[0], one[1].turn, one[1].place))[:60]
    places = {clip(line.text, ITEM_MAX): (line.turn, line.place) for _, line in reversed(ranked)}
    return sorted(_distinct(reversed(places), limit), key=places.__getitem__)


def _merged(old: Sequence[str], new: Sequence[str], first: int, last: int) -> list[str]:
    """Old and new without doubles; of too many, the oldest and the newest."""
    both = _distinct([*old[:20], *new], 40)
    return both if len(both) <= first + last else both[:first] + both[-last:]


def _goal(asks: Sequence[Line], main: Line | None) -> list[str]:
    first = [f"{one.text} {one.after * (not one.text[-1].isalnum())}".strip() for one in asks[:1]]
    later = [(len(one.runs) + 9.0 * (one is main), one) for one in asks[1:] if one.runs]
    return _distinct([*(clip(one, ITEM_MAX) for one in first), *_best(later, 3)], 4)


def _decisions(turns: Turns, main: Line | None) -> list[str]:
    scored: list[tuple[float, Line]] = []
    asked = ""
    for turn in turns:
        for line in turn:
            advised = _ADVISED.search(line.low) or _ORDERED.match(line.low)
            score = 3.0 * bool(_DECIDED.search(line.low)) + 2.0 * bool(advised)
            score += 2.0 * (not line.user and line.place == 0 and bool(_CHOICE.search(asked)))
            if score and line is not main and not line.text.endswith(_ASKING):
                score -= 1.5 * bool(_PLAN.match(line.low)) + 1.5 * line.text.endswith(_LEADING_ON)
                scored += [(score, line)] * (score > 1)
        asked = turn[-1].low if turn[0].user else ""
    return _best(scored, 5)


def _results(turns: Turns, before: list[str]) -> tuple[str, list[str]]:
    """The sentence that says best what came of it, and up to four that say it at all."""
    told = [one for turn in turns for one in turn if _tells(one)]
    if not told:
        return "", before
    scored = [(bool(_RESULT.search(one.low)) + one.turn / 1e6, one) for one in told]
    final = [(2 + score, one) for score, one in scored if one.turn == told[-1].turn]
    final = [one for one in final if not _OPEN.search(one[1].low)] or final
    early = [one for one in scored if one[0] >= 1 and one[1].turn != told[-1].turn]
    best = sorted(final, key=lambda one: (-one[0], one[1].place))[:3]
    lead = best[0][1].text
    if best[0][0] < 3 and lead[-1].isalnum():  # noqa: PLR2004 - no result; a list is told whole
        lead = "; ".join(one.text for _, one in final)
    return lead, before + _best([*best, *early], 4)


def _steps(turns: Turns) -> list[str]:
    """What is still open: a message without an answer, a question, work announced."""
    last = turns[-1] if turns else []
    found: list[str] = []
    if last and last[0].user:
        text = f"{last[0].text} {last[0].after}".strip()
        if set(phrases.words(text)) <= _CLOSING:
            return []
        found.append(f"Unanswered: {text}")
        last = turns[-2] if len(turns) > 1 and not _is_request(last[0]) else []
    if last:
        if last[-1].text.endswith(_ASKING):
            found.append(f"Awaiting an answer: {last[-1].text}")
        elif _PLAN.match(last[-1].low):
            found.append(last[-1].text.rstrip("".join(_LEADING_ON)))
        found += [one.text for one in last if _OPEN.search(one.low) and one.text[-1] != ":"]
    return _distinct((clip(text, ITEM_MAX) for text in found[:8]), 4)


def _paths(paths: Sequence[str], cwd: str) -> list[str]:
    """File names to show, relative to the session's directory where they are below it."""
    base = cwd.rstrip("/") + "/"
    shown = (plain(clean_line(path[:600].removeprefix(base), 160)) for path in paths[:200])
    return list(dict.fromkeys(path for path in shown if path))


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _listed(names: Sequence[str], limit: int) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _description(asked: str, lead: str, steps: Sequence[str], users: int, files: Files) -> str:
    parts = {"Asked": asked, "Outcome": lead, "Open": "" if lead else "".join(steps[:1])}
    said = []
    for label, text in parts.items():
        short = clip(plain(text), 260).rstrip(" ,;:")
        end = "" if short[-1:] in ".!?…。\uff01\uff1f" else "。" if dense(short) else "."
        said += [f"{label}: {short}{end}"] if short else []
    size = f"{users} request" + "s" * (users != 1)
    label = "Changed" if files["Changed"] else "Read"
    names = [clip(_base(one), 60) for one in files[label]]
    size += f"; {label.lower()} {_listed(names, 3)}" if names else ""
    return " ".join([*said, size + "."])


def _sections(summary: str) -> dict[str, list[str]]:
    """The items of an earlier summary by heading; what stands before any heading is its goal."""
    found: dict[str, list[str]] = {"goal": [], "key decisions": [], "outcome": []}
    items = found["goal"]
    for line in clean_text(summary[: 2 * SUMMARY_MAX], SUMMARY_MAX).split("\n"):
        heading = re.match(r"#{1,6}\s+(.*)", line)
        if heading:
            items = found.setdefault(heading[1].strip(" :").lower(), [])
            continue
        text = phrases.tidy(re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "", line))
        if text and not text.startswith((_NOTHING, "Earlier: ")):
            items.append(clip(text, ITEM_MAX))
    return found


def _tags(facts: Facts, turns: Turns, files: Files) -> list[str]:
    lines = sorted(itertools.chain.from_iterable(turns), key=lambda one: not one.user)
    found = [
        *phrases.tickets((line.text for line in lines), 3),
        *phrases.key_phrases(((line.runs, 3 if line.user else 1) for line in lines), 6),
        *(_base(one).lower() for one in (files["Changed"] or files["Read"])[:2]),
        _base(clean_line(facts.cwd[-400:], 400)).lower(),
    ]
    tags = list(dict.fromkeys(tag for one in found if (tag := plain(one)[:40].strip())))[:10]
    tools = (plain(clean_line(tool[:80], 40)).lower() for tool in sorted(facts.tools_used)[:9])
    for one in (*tools, "conversation", "agent session", "untagged"):
        if len(tags) < TAGS_MIN and one and one not in tags:
            tags.append(one)
    return tags
