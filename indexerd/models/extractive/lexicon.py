"""Words and patterns that tell a result from a plan, a choice or a question, in English.

Sentences in other languages match none of them, and are ranked by their terms alone.
"""

from __future__ import annotations

import re

from indexerd.privacy.patterns import lazy_pattern

_BEGUN = (  # words before a sentence's first word
    r"(?:(?:ok(?:ay)?|now|so|then|also|and|first|next|great|good|perfect|right|sure|yes|ah|[~/$]\S+)"
    r"[\s,.!:—-]{1,3}){0,6}"
)


def _cue(words: str) -> re.Pattern[str]:
    return lazy_pattern(rf"\b(?:{words})(?!\w)", re.IGNORECASE)


def _opening(words: str) -> re.Pattern[str]:
    return lazy_pattern(rf"{_BEGUN}(?:{words})(?!\w)", re.IGNORECASE)


WISH = _opening(  # of a user
    r"please|(?:can|could|would|will) (?:you|we)|let'?s|we (?:need|should)|help me"
    r"|i(?:'d like| want| need| would like)(?: you)? to|add|analy[sz]e|apply|build|change|configure"
    r"|convert|create|debug|delete|deploy|design|disable|document|enable|find|fix|generate|implement"
    r"|improve|install|investigate|make|merge|migrate|move|perform|port|refactor|remove|rename"
    r"|replace|research|review|set up|split|support|test|translate|uninstall|update|use|write"
)
POINTING = _cue(r"it|this|that|these|those|them|here|you|your|question \d+")
MUSING = lazy_pattern(
    r"(?:[?\uff1f吗呢]|か|教えて.{0,6})\W{0,4}$"
    r"|\b(?:i (?:think|guess|mean|wonder|see|notice|keep)|maybe|probably|seems|actually)\b",
    re.IGNORECASE,
)
SPEAKING = _opening(  # an agent announces work, or speaks to the user: no result
    r"let me|let's|i'll|i will|i'm|i (?:need|want|have|should|can|could)|i'd|looking|checking"
    r"|vou|agora|voy a|ahora|сейчас|теперь|launching|reading|waiting|wait|standing by|i see"
    r"|all set|now|still (?:running|fighting)|next"
    r"|no response|would you|do you|want me|shall|should|if you|you|here(?:'s| is| are)"
    r"|se quiser|por favor|si (?:tu|vous|quier\w+)|no voy|vamos|je vais|để tôi|tôi sẽ"
)
COMING = lazy_pattern(  # work that is announced, or half a sentence
    r"\bI'll\b|^(?:まず|次に|次は|これから|最後に|让我|我来|我先|我会|我将|我需要|现在来|接下来"
    r"|请|如果你|如需|需要你|等你|要不要|告诉我)"
    r"|(?:ください|ましょう|でしょうか|하겠습니다|진행합니다|해 ?주세요|드릴까요)\W?$"
    r"|(?<!てい)(?<!でき)(?<!れ)(?<!なり)(?<!あり)ます[。.]?$|\b(?:at|in|to|with|is|are|following):$"
)
LED_IN = lazy_pattern(  # before the subject of what an agent tells of a session
    r"^(?:asked: )?(?:(?:the )?(?:main |overall )?"
    r"(?:goal|task|request)(?: (?:is|was))?(?: to)?[:\s]+"
    r"|(?:the user|user|you|we|i)(?:'(?:re|ve|d)| are| is| was| were| have| has)?\s"
    r"(?:(?:explicitly )?(?:asked|asks|wanted|wants?|requested)(?: me| us| for)?(?: to)?\s)?"
    r"|(?:this|the) session (?:covered|implemented|was about)\s)?",
    re.IGNORECASE,
)
COMES_NEXT = r"(?<=[.!。])\s*(?:Next(?: (?:step|action|up)s?)?(?::| is\b)|下一步(?:是|[:：])?)"  # noqa: RUF001 - wide
BARE = _opening(  # means what was said before, or that it was understood
    r"(?:files? )?(?:updated|created)(?=:)|that|this|it|these|those|they|understood|got it"
    r"|but|however|明白|好的|收到|了解"
)
DONE = lazy_pattern(
    r"\b(?:fixe[sd]|add(?:s|ed)|implement(?:s|ed)|create[sd]|wrote|updated|remove[sd]|rename[sd]|move[sd]"
    r"|migrated|resolve[sd]|refactored|deployed|merged|committed|pass(?:es|ed)?|replace[sd]|works"
    r"|extracted|opened|pushed|consolidated|simplified|converted|documented|released|restored"
    r"|verified|confirmed|installed|changed|complete[sd]?|done|finished|retries)(?!\w)"
    r"|ました|完了|完成|已|готово|создан|добавлен|исправлен|criad|adicionad|corrigid|atualizad",
    re.IGNORECASE,
)
CHOSEN = _cue(  # an agent
    r"decided (?:to|on|against|not)|decision (?:is|was)|(?:we|i) chose|chose to|opted (?:for|to)"
    r"|settled on|agreed (?:to|on|that)|(?:we|i)(?:'ll| will) use|(?:going|go|went) with|ruled out"
    r"|switched to"
)
ANSWERED = _cue(  # a user's choice, after the first request
    r"let'?s (?:use|do|go|keep|drop|stick|just|not|make|leave)|(?:go|stick) with"
    r"|i(?:'d)? prefer|instead of|rather than|i like|i'd like (?:it|all)|no need|keep (?:it|the)"
)
OFFER = _cue(r"consider|recommend\w*|suggest\w*|propos\w*|could|would|should|options?|might|may")
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
    r"[A-Za-z]{24}|\w:\d+\b|\\|\(Recommended\)|^\{|[│\u276f⎿⏺✗✓=]|^\S+ \| |^@|https?://|^--|\w> \w"
    r"|\w@\w+ ~|\w@\d|\w\(\)? [a-z]+ =|^\"\w+\"\s?:"
    r"|\w@[\w.-]+[: ]\S+ ?[%$#] |^Command “|^[A-Z][a-z]+-[A-Z]\w+ [\"'$-]|\w\.\w+\([\w\"']"
    r"|^(?:ERROR|WARN(?:ING)?|FATAL|INFO)\b|^(?i:hint|warning|fatal): "
    r"|^(?i:(?:sudo|npm|npx|pnpm|yarn|pip3?|brew|apt(?:-get)?|curl|chmod|chown|ssh|cd) )"
    r"|^(?i:you are an? |act as |tu es une? |eres una? |você é uma? |du bist eine? |你是|あなたは)"
    r"|^(?i:generate a file named AGENTS\.md|(?:please )?analy[sz]e this codebase and create a"
    r"|create principles focused on|you must fully embody|never break character|load the full agent"
    r"|read its entire contents|execute all activation|follow the agent's persona"
    r"|stay in character)"
)  # no prose, or a prompt that comes with the tool (/init, Spec Kit, BMAD)
TYPE = lazy_pattern(  # "feat(parser): "
    r"[#\s]*(?:(?:feat|docs?|style|refactor|perf|tests?|build|ci|chore|revert|deps|wip"
    r"|initial(?: commit)?)(?:\(([^)]{0,40})\))?!?:)?\s*",
    re.IGNORECASE,
)
PADDING = lazy_pattern(  # before a request
    r"(?:(?:(?:@\"[^\"]{1,60}\"|(?:question|goal|task|updated|created|done)(?=:)|hi|hello|hey|thanks"
    r"|great|ok(?:ay)?|yes|yeah|now|so|then|also|and|but|please|just|something else"
    r"|in [\w/.-]+ module"
    r"|(?:for|in) (?:this|the|our|my) (?:project|repo(?:sitory)?|codebase|app|hackathon)"
    r"|(?:execute|implement|follow) (?:this|the) plan(?: at)?|(?:can|could|would|will) (?:you|we)"
    r"|i(?: want|'d like| need)(?: you)? to|let(?:'?s| us)|we (?:need|should)"
    r"|there(?:'s| is| are)|the user (?:wants|wanted) to|help me(?: to)?|(?:tell|show|remind) me"
    r"|explain|check|our|again)(?=[\s,:!.-])|请|帮我|你好|我(?:现在)?(?:想|要)(?:让你|要)?|すみません)[\s,;:.!，。-]*){0,8}",  # noqa: RUF001 - wide
    re.IGNORECASE,
)
HOME = lazy_pattern(
    r"^.*[/\\](?:Users|home|Volumes)[/\\][^/\\]+|^/(?:root|workspaces?|srv|data|tmp)\b",
    re.IGNORECASE,
)
PLACE = lazy_pattern(  # directories that hold several projects, or parts of one
    r"[.-].*|\w:|v?\d[\d.]*|\w*(?:projects?|documents?|documentos|workspaces?|system32)|new|desktop"
    r"|downloads|dev|developer|codes?|git|github|repos?|src|apps?|application|libs?|packages|docs"
    r"|tests?|te?mp|misc|work|personal|build|main|admin|windows|onedrive|home|var|opt|etc|usr|files",
    re.IGNORECASE,
)
OUTCRY = lazy_pattern(
    r"\b(?:piece of (?:shit|crap|junk)|(?:you )?(?:idiot|moron)\w*|what the (?:hell|fuck)|fu+ck\w*"
    r"|(?:bull)?shit\w*|(?:god)?damn\w*|crap\w*|wtf|[au]rgh+|u+gh+|gah+|h+mm+)\b[\s,.!]*",
    re.IGNORECASE,
)
CLAUSE = lazy_pattern(  # where a long request may end
    r"[、，；]| \(|(?:[,.;:?!]| [-–—]| so that| because| since| but| if"  # noqa: RUF001 - dashes
    r"| and (?:then|also|the|it|i|we)| as (?:it|we|i)| which| where| when)\s",
    re.IGNORECASE,
)
# Words that tell no subject.
DULL = """add agree answer back brief call change check clean clear code comment continue
    conversation create current day default describe detail down easy end ensure error existing
    explain file finally fix happen hello hey http https id implement issue job kind lol main meet
    minute move new nice nope note number off old part parts place point points print problem
    question read ready reason remove rename request result review run second seconds session stop
    ticket time turn understand update user verify week write yeah"""
# Words that say nothing alone: they are no key words.
VAGUE = """accept ai approach command complete config implementation line name path perfect phase
    pick plus project proper real requirement section start table task value"""
# Files that most projects have: as tags they do not tell sessions apart.
EVERYWHERE = """readme.md memory.md claude.md agents.md changelog.md todo.md index.html
    package.json package-lock.json .gitignore __init__.py main.py index.ts index.js"""
# Words about the work, not about its subject.
PROCEDURE = """address apply bit branch changes ci comment commit confirm conflict continue
    create description draft explain fail feedback fix git github gpg lint linting master merge
    open option parent pass plan previous propose pull push rebase refine repo repository review
    session signature squash stage staged status step summarise task testing thing untracked
    update
    確認 追加 変更 表示 対応 修正 実装 作成 更新 場合 削除 比如 现在 使用 需要 文件 问题"""
