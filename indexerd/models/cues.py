"""Words that give a sentence away: a request, a decision, a result, work announced, what is open.

In: nothing. Out: patterns for the sentences of people and agents, in the languages that sessions
are held in. Those made by `cue` are searched in a sentence in small letters with a space before
it, so that a word is found at its beginning alone. None looks ahead without a limit.
"""

from __future__ import annotations

import re

from indexerd.models.phrases import word_set
from indexerd.privacy.late import late


def pattern(text: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Make a pattern of several lines; each apostrophe stands for both kinds."""
    joined = "".join(line.strip() for line in text.split("\n"))
    return late(joined.replace("'", "['\u2019]"), flags)


def cue(words: str) -> re.Pattern[str]:
    """What gives a `Line.low` away: words `||` parts of scripts without spaces."""
    spaced, more, unspaced = words.partition("||")
    either = f"|{unspaced}" if more else ""
    return pattern(rf"\x20(?:{spaced})(?!\w){either}", 0)  # a space first is much quicker


PADDING = pattern(r"""(?:(?:
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
POLITE_END = pattern(r"""(?:[\s,]+(?:please|pls|thanks|thank you|thx|bitte|danke|merci|gracias
    |s'il (?:te|vous) pla[iî]t|stp|svp|por favor)|[,、\uff0c]?谢谢|吧|を?お願いします|ください
    |(?<=[ァ-ヶー一-鿿]{2})して(?:ください|ほしい)|\s?해\s?(?:주세요|줘))[\s.!?。\uff01\uff1f]*$""")
ARTICLE = pattern(r"""(?:the|an?|der|die|das|den|dem|ein(?:e[nmr]?)?|les?|la|une?|el|los|las)\s
    (?!(?:\S+\s){1,2}(?:is|are|was|were|has|ist|sind|hat|est|sont|es|está)\s)""")
PROBLEM = pattern(r"(?:there(?:'s| is| are)|(?:we|i) (?:have|see)) (?=(?:an?|two|some) )")
DO_IT = pattern(r"(?:please |(?:can|could) you (?:please )?)?([a-z]+) (?:it|them|this|that)\b")
VERBS = word_set("""add analyze build change check clean convert create debug delete design draft
    document drop explain extract find fix handle implement improve investigate make merge migrate
    move refactor remove rename replace review rewrite run set solve split test update write""")
IT = {"it", "this", "that", "them"}
PATH = re.compile(r"(?<!\S)@?(?:[\w.~@:-]*/){2,}?((?:[a-z]+/(?=\d))?[\w.@-]+)(?![\w/])")
SETTING = pattern(r"\s*(?:i'm|i am|we're|we are) (?:working|building|using)|\s*(?:i|we) use ")
DECIDED = cue(r"""decided|decision(?::| is| was)|cho(?:se|osing|sen)|opt(?:ed|ing) (?:for|to)
    |(?:\w+'ll|will) use|(?:going|go|went) with|settl(?:ed?|ing) on|let(?:'s| us) (?:use|keep|drop)
    |agreed|the (?:fix|solution|plan) (?:is|was)|root cause (?:is|was)|stick(?:ing)? with|ruled out
    |switch(?:ed|ing)? (?:\w+ )?(?:to|from)|instead of|we should(?:n't)?|we won't|rejected|geeinigt
    |beschlossen|entschieden|(?:an)?statt|wir (?:nehmen|verwenden)|nehmen wir|umgestellt auf|choisi
    |décid\w+|utilisons|au lieu de|decid(?:ido|imos)|elegimos|vamos a usar|en (?:lugar|vez) de
    ||ことにし|に決め|を採用|にします|方針|决定|采用|改用|而不是""")
ADVISED = cue(r"""should (?:not )?(?:be|use|stay|live|go)|prefer|rather than|instead|sollten
    |recommend|suggest|no longer|replac(?:ed?|ing)\b.{1,60}\b(?:with|by)|stattdessen|plutôt que
    |devrions|la (?:cause|causa|solution|solución)|deberíamos|(?:die )?ursache (?:ist|war)
    ||代わりに|べき|应该|建议|原因""")
ORDERED = pattern(r"""\s(?:(?:yes|no|ja|nein|oui|non)[,:.]?\s|[^:]{1,20}:\s)?
    (?:use|keep|cap|inject|store|avoid|retry|limit|nimm|verwende|utilise|usa)\s""")
CHOICE = cue(r"""(?:should (?:we|i|it)|which|what about|how (?:do|should) (?:we|i)|sollt?en wir
    |welche\w*|was ist mit|faut-il|quel(?:le)?|deberíamos|cuál)\b.*\?||どう|哪个|怎么""")
RESULT = cue(r"""fixed|added|implemented|created|wrote|updated|removed|renamed|moved|migrated
    |green|refactored|deployed|merged|committed|pushed|resolved|completed?|done|finished|work(?:s|ing)
    |pass(?:e[sd])?|restored|verified|confirmed|shipped|rolled back|installed|turned out|changed
    |replaced|extracted|split|behoben|korrigiert|hinzugefügt|umgesetzt|erledigt|fertig|erstellt
    |geändert|läuft|laufen|gelöst|(?:corrig|ajout|cré|termin)é\w*|résolu|pasan
    |(?:corregi|añadi|crea|actualiza)d\w*||しました|完了|済み|完成|修复|成功|已""")
PLAN = pattern(r"""\s*(?:(?:ok(?:ay)?|now|first|next|then|good|great|perfect|also|so|jetzt|zuerst
    |ahora)[\s,.!:]+)*(?:(?:let me|let's|i'll|i will|i'm (?:going|now)|next(?=[ ,:])|looking at
    |i (?:need|want|have) to|we (?:need|still)|now (?:i|add|update|create|let|check|the tests)
    |checking|reading|waiting|ich (?:werde|schaue|lese|prüfe|sehe)|als nächstes|lass mich
    |je vais|laisse[sz]?-moi|voy a|déjame)(?!\w)|让我|接下来|我将|次に|まず|確認します)""")
OPEN = cue(r"""remain(?:s|ing)|todo|next (?:steps?|up|is)|still (?:need|ha[vs]|to|missing|open)\w*
    |not yet|left to|follow-?ups?|open (?:question|issue|point)s?|pending|blocked|noch (?:offen|zu)
    |als nächstes|fehlt noch|reste à|pendiente\w*||残り|未完|未対応|接下来|还需|下一步""")
CLOSING = word_set("""thank thanks you thx ty great perfect nice cool ok okay good super danke
    prima gut passt merci gracias lgtm done bye that's it is all a lot very much 谢谢 ありがとう""")

# -- what a summary must not lose --

BOUND = cue(r"""must(?:n't)?|never|always|forbidden|not allowed|constraints?|requirements?|has to
    |have to|under no circumstances|mandatory|strictly|muss|müssen|darf|dürfen|niemals|immer|doit
    |doivent|jamais|toujours|debe[ns]?|nunca|siempre||必ず|禁止|必须|绝不|不要|しないで""")
PREFERRED = cue(r"""prefer\w*|avoid|at most|at least|no more than|no less than|only|without
    (?: breaking| changing| touching)|should(?: not|n't)?|(?:please )?(?:do not|don't)|rather than
    |make sure|keep|stick to|bevorzug\w*|höchstens|mindestens|nur|lieber|seulement|solo""")
NO_RULE = pattern(r"\s(?:i|we|you|they|it) (?:don't|do not|never|always|have to|only)(?!\w)")
FOUND = cue(r"""turn(?:s|ed) out|root cause|because|the (?:problem|reason|cause|culprit|catch|bug)
    |found (?:that|out)|discovered|note that|important(?:ly)?|remember|caused by|learn(?:ed|t)
    |die ursache|weil|le problème|la cause|la causa|porque||原因|なぜなら|因为""")
STUCK = cue(r"""blocked|blocker|stuck|waiting (?:for|on)|can(?:not|'t) (?:proceed|continue)|fails
    |still fail\w*|keeps? failing|needs? access|permission denied|blockiert|bloqué|bloqueado""")
EXACT = re.compile(
    r"(?<![\w/])(?:~|\.{0,2})/[\w.@+-]+(?:/[\w.@+-]+)+|\b[\w-]+/[\w./-]*\w\.\w{1,5}\b|https?://\S"
    r"|\bports?\s+`?\d|:\d{2,5}\b|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|\b[A-Z]{2,10}-\d{1,6}\b"
    r"|\b\w*(?:Error|Exception)\b|\bE[A-Z]{4,}\b|\b(?:exit|status|error) (?:code )?\d"
    r"|\bv?\d+\.\d+\.\d"
)
FIGURE = re.compile(
    r"`[^`]+`|\b\d+(?:[.,]\d+)?\s?(?:%|[kKMG]i?[bB]|ms|s|min|h|days?|rows|requests)\b"
)
