"""Words and patterns that tell a result from a plan, a choice or a question, in English.

Sentences in other languages match none of them, and are ranked by their terms alone.
"""

from __future__ import annotations

import re

from indexerd.privacy.patterns import lazy_pattern

_BEGUN = (  # words before a sentence's first word
    r"(?:(?:ok(?:ay)?|now|so|then|also|and|first|next|great|good|perfect|right|sure|yes|ah)"
    r"[\s,.!:—-]{1,3}){0,6}"
)


class Cue:
    """A pattern in lower case: to lower a text first is twice as fast as `re.IGNORECASE`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = lazy_pattern(pattern)

    def search(self, text: str) -> bool:
        return self._pattern.search(text.lower()) is not None


def _cue(words: str) -> Cue:
    return Cue(rf"\b(?:{words})(?!\w)")


def _opening(words: str) -> re.Pattern[str]:
    return lazy_pattern(rf"{_BEGUN}(?:{words})(?!\w)", re.IGNORECASE)


WISH = _opening(  # of a user
    r"please|(?:can|could|would|will) (?:you|we)|let'?s|we (?:need|should)|help me"
    r"|i(?:'d like| want| need| would like)(?: you)? to|add|analy[sz]e|build|change|configure"
    r"|convert|create|debug|delete|design|document|find|fix|generate|implement|improve|investigate"
    r"|make|merge|migrate|move|perform|port|refactor|remove|rename|replace|research|review|set up"
    r"|split|support|test|update|use|write"
)
POINTING = _cue("it|this|that|these|those|them|here|you|your")
MUSING = Cue(
    r"[?\uff1f]\W{0,4}$"
    r"|\b(?:i (?:think|guess|mean|wonder|see|notice|keep)|maybe|probably|seems|actually)\b"
)
TELLING = _opening(  # a statement or a question, no wish
    r"i|i'm|i've|i'd|we|we're|you|this|that|it|it's|there|they|these|is|are|am|was|does|do|did|has"
    r"|have|no|don't|do not|never|why|what|how|where|which|when|until|since|because|if|so|but|hmm"
)
SPEAKING = _opening(  # an agent announces work, or speaks to the user: no result
    r"let me|let's|i'll|i will|i'm|i (?:need|want|have|should|can|could)|i'd|looking|checking"
    r"|launching|reading|waiting|wait|standing by|i see|all set|now|no response|would you|do you"
    r"|want me|shall|should|if you|you|here(?:'s| is| are)"
)
ASIDE = lazy_pattern(r"(?:quick|btw|by the way)\b|.{0,80}\b(?:number|question) \d", re.IGNORECASE)
BARE = _opening(  # means what was said before, or that it was understood
    r"that|this|it|these|those|they|understood|got it|明白|好的|收到|了解"
)
LACK = _cue(r"(?:does|is|do|are)n't|(?:does|is|do|are) not|not found|can't|cannot|no such|failed")
ENDED = _cue(  # the state that a session was left in
    r"\d+(?:/\d+)? (?:\w+ )?(?:tests|passe[ds]|passing)|pushed|deployed|up to date|uncommitted"
    r"|(?:build|lint|tests?|typecheck)\W{1,4}(?:pass|fail)\w*|not (?:yet )?(?:run|committed|pushed)"
)
CAUSE = _cue(
    r"root cause|caused by|because|turn(?:s|ed) out|found that"
    r"|the (?:bug|issue|problem|reason) (?:is|was)"
)
DONE = _cue(
    r"fixe[sd]|add(?:s|ed)|implement(?:s|ed)|create[sd]|wrote|updated|remove[sd]|rename[sd]|move[sd]"
    r"|migrated|resolve[sd]|refactored|deployed|merged|committed|pass(?:es|ed)?|replace[sd]|works"
    r"|extracted|opened|pushed|consolidated|simplified|converted|documented|released|restored"
    r"|verified|confirmed|installed|changed|complete[sd]?|done|finished|retries"
)
CHOSEN = _cue(  # an agent
    r"decided (?:to|on|against|not)|decision (?:is|was)|(?:we|i) chose|chose to|opted (?:for|to)"
    r"|settled on|agreed (?:to|on|that)|(?:we|i)(?:'ll| will) use|(?:going|go|went) with|ruled out"
    r"|rejected|switched to"
)
ANSWERED = _cue(  # a user's choice, after the first request
    r"let'?s (?:use|do|go|keep|drop|stick|just|not|make|leave)|(?:go|stick) with"
    r"|i(?:'d)? prefer|instead of|rather than|i like|i'd like (?:it|all)|no need|keep (?:it|the)"
)
OFFER = _cue(r"consider|recommend\w*|suggest\w*|propos\w*|could|would|should|options?|might|may")
MARK = r"\b[A-F1-9]\b"  # of an option
ASKS = lazy_pattern(r"[?？]|\boptions?\b", re.IGNORECASE)  # noqa: RUF001 - wide
TAKEN_BACK = _cue(
    r"i was (?:wrong|mistaken)|my mistake|was wrong|(?:isn't|wasn't|is not|was not) (?:right"
    r"|correct|true|it)|it (?:isn't|wasn't)|revert(?:ed)?|undo|scrap|roll(?:ed)? back|not what i"
)
BLOCKED = _cue(r"blocked|blocker|stuck|waiting (?:for|on)|can(?:not|'t) proceed|still fail\w*")
NEXT = _cue(
    r"remain(?:s|ing)|to ?do|next steps?|still (?:need|ha[vs]|to|missing|open)\w*|not yet"
    r"|left to|follow-?ups?|pending"
)
RULES = _cue(
    r"must(?:n't)?|never|always|forbidden|not allowed|mandatory|strictly|requirements?"
    r"|constraints?|at most|at least|no (?:more|less|later) than|make sure|keep the|do(?: not|n't)"
)
EXACT = lazy_pattern(  # paths, ports, errors, causes
    r"(?<![\w/])(?:~|\.{0,2})/[\w.@+-]+(?:/[\w.@+-]+)+|\b[\w-]+/[\w./-]*\w\.\w{1,5}\b|https?://\S"
    r"|\bports?\s+`?\d|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|\b[A-Z]{2,10}-\d{1,6}\b"
    r"|\b\w*(?:Error|Exception)\b|\b(?:exit|status|error) (?:code )?\d|\bv?\d+\.\d+\.\d"
    r"|\b(?:root cause|caused by|turn(?:s|ed) out|because|found that)\b"
)
PASTED = lazy_pattern(
    r"\w:\d+\b|\\|\(Recommended\)|^[「{\"“]|[│\u276f⎿⏺✗✓=]|^@|https?://|^--|\w\(\)? [a-z]+ ="
)  # no prose
TYPE = lazy_pattern(  # "feat(parser): "
    r"[#\s]*(?:(?:feat|docs?|style|refactor|perf|tests?|build|ci|chore|revert|deps|wip"
    r"|initial(?: commit)?)(?:\(([^)]{0,40})\))?!?:)?\s*",
    re.IGNORECASE,
)
PADDING = lazy_pattern(  # before a request
    r"(?:(?:(?:@\"[^\"]{1,60}\"|(?:question|goal|task|updated|created|done)(?=:)|hi|hello|hey|thanks"
    r"|great|ok(?:ay)?|yes|yeah|now|so|then|also|and|but|please|just|something else"
    r"|(?:for|in) (?:this|the|our|my) (?:project|repo(?:sitory)?|codebase|app|hackathon)"
    r"|(?:execute|implement|follow) (?:this|the) plan|(?:can|could|would|will) (?:you|we)"
    r"|i(?: want|'d like| need)(?: you)? to|let(?:'?s| us)|we (?:need|should)"
    r"|there(?:'s| is| are)|the user (?:wants|wanted) to|help me(?: to)?|(?:tell|show|remind) me"
    r"|explain|check|our|again)(?=[\s,:!.-])|请|帮我|你好|すみません)[\s,;:.!，。-]*){0,8}",  # noqa: RUF001 - wide
    re.IGNORECASE,
)
PART = lazy_pattern(r"[A-Za-z]{1,5}-?(\d+):")  # before the title of one of several parts
SPEC = lazy_pattern(
    r"[/\\](?:specs[/\\]\d{1,4}-([\w-]+)[/\\]|(?<!\.claude.)plans?[/\\](?:\d{4}-\d\d-\d\d-)?([\w-]+)\.md$)"
)
HOME = lazy_pattern(
    r"^.*[/\\](?:Users|home|Volumes)[/\\][^/\\]+|^/(?:root|workspaces?|srv|data|tmp)\b",
    re.IGNORECASE,
)
PLACE = lazy_pattern(  # directories that hold several projects, or parts of one
    r"[.-].*|\w:|v?\d[\d.]*|\w*(?:projects?|documents?|documentos|workspaces?|system32)|new|desktop"
    r"|downloads|dev|developer|codes?|git|github|repos?|src|apps?|application|libs?|packages|docs"
    r"|tests?|te?mp|misc|work|personal|build|main|admin|windows|onedrive",
    re.IGNORECASE,
)
AFTER = lazy_pattern(r"\s\([^()]*\)?\W*$")  # a title
READING = lazy_pattern(  # before the request itself
    r"(?i)\A(?:(?:take|have) a look at|read|look at|check|see) [^,;!?]{1,80}?"
    r"(?:, and|,| and)(?: then)? (?=\w+ \S+ \S)"
)
OUTCRY = lazy_pattern(
    r"\b(?:piece of (?:shit|crap|junk)|(?:you )?(?:idiot|moron)\w*|what the (?:hell|fuck)|fu+ck\w*"
    r"|(?:bull)?shit\w*|(?:god)?damn\w*|crap\w*|wtf|[au]rgh+|u+gh+|gah+|h+mm+)\b[\s,.!]*",
    re.IGNORECASE,
)
OUTCRIES = (  # one of these is in each, in lower case
    *("uck", "shit", "damn", "crap", "idiot", "moron", "piece of junk", "what the hell", "wtf"),
    *("rgh", "ugh", "gah", "hmm"),
)
CLAUSE = lazy_pattern(  # where a long request may end
    r" \(|(?:[,.;:?!]| [-–—]| so that| because| since| but| and (?:then|also|the|it|i|we)| if"  # noqa: RUF001 - dashes
    r"| as (?:it|we|i)| which| where| when)\s",
    re.IGNORECASE,
)
# Words that connect the parts of a phrase.
LINKS = (
    "a and at by covering for from in into of on onto over that the to using via when where with"
)
# Words that tell no subject.
DULL = """add agree answer ask back brief call change check clean clear code comment continue
    conversation create current day default describe detail down easy end ensure error existing
    explain file finally fix found good great happen hello hey http https id implement issue job
    kind look main make minute move new note number off old part parts place please point points
    print problem question read ready reason remove rename request result review run second
    seconds session stop sure tell thank thanks thought ticket time today try turn understand
    update user verify want week write www"""
# Words without a subject in other languages, without accents.
FOREIGN = """de da do das dos em na nas nos uma um que nao ja sem com por para ou mas como mais
    seu sua isso foi ser esta tem vou agora el la los las del una en con es su al pero si este todo
    et est dans pour pas sur avec des les qui du aux ce cette sont und der die das ist nicht ein zu
    den mit fur auf von dem sich auch wie oder aber cac cho toi cua khong duoc voi nay mot
    на по для не что это как из от за но же если или все бы он мы вы так уже да нет чтобы при до"""
# Words about the work, not about its subject.
PROCEDURE = """address apply ask bit branch changes ci comment commit conflict continue create
    description done draft explain fail feedback fix git github gpg lint linter linting main master
    merge open parent pass plan pr propose pull push rebase refine repo repository review signature
    squash staged stage successfully testing thing untracked update"""
