"""Words of names: which one may stand for which, and which say nothing by themselves.

In: single words in folded form (lower case, no signs). Out: yes or no. Nothing is remembered.

A word may stand for another if it is the same, begins it (five letters and more), is an inflected
form of it, or is a slip of the finger away from it: one letter from four letters on, two from
eight on, two swapped letters being one. Two real words are often no further apart than that
("sprint" and "spring", "maximize" and "minimize"), so a word that is well known to be one, as
typed, is never taken for a slip or for the beginning of another: `_REAL` lists those that have
such a neighbour in technical English. Nor are words that differ in what turns them round
("unload" and "upload"), or in their first letter ("decrease" and "increase").

rapidfuzz is imported with the first comparison: hooks load this module and need it rarely.
"""

from __future__ import annotations

from collections.abc import Iterable

from indexerd.privacy.patterns import lazy_pattern


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEGIN_MIN = 5  # letters that may stand for the word that they begin
_SLIP_MIN, _TWO_SLIPS_MIN, _ALONE_MIN = 4, 8, 6  # letters of a word that may be mistyped
_STEM_MIN = 3  # letters left of a word without its prefix or ending
_CONTENT_MIN = 3  # letters of a word that says something
_HISSES = ("s", "x", "z", "ch", "sh", "o")  # "s" behind them is "es"
_SHORT = lazy_pattern(
    "[^aeiouy]*[aeiouy][^aeiouwxy]|[^aeiou]*"
)  # "plan" is "planned", not "planed"
_TURNING_ENDS = ("less", "free", "out", "off")  # "server" begins "serverless", and is not it
_OTHER_THINGS = _set("""
    arm bath breath cloth custom even fee good mean new past see
""")  # "new" and "news"

# Scripts that put no space between words, and what turns the word behind it into its opposite.
_UNSPACED = lazy_pattern("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_TURNING_SIGNS = frozenset("不未非无無反没沒")

_PREFIXES = _set("""
    a ante anti auto bi co counter de dis down em en ex extra fore hyper hypo il im in inner
    inter intra ir macro mega meta micro mid mini mis mono multi non off on out outer over para
    poly post pre pro pseudo quasi re self semi sub super tele trans tri ultra un under uni up
""")
_NEGATIONS = _set("""
    no not never none non without cannot dont doesnt isnt cant wont anti un t nicht kein keine
    ohne nie pas sans ne sin nunca
""")
_FILLERS = _set("""
    about after all also and any are because been before but can could does each for from get
    got had has have her here him his how into its just let like make may more most much not now
    of off on one only onto our out over per please she should some such than that the their
    them then there these they this those too upon use very was way were what when where which
    while who why will with would yes yet you your der die das den dem des ein eine und von mit
    für les une pour avec los las del una para con
""")
_REAL = _set("""
abort about above absent accent accept access accident accommodate account accurate action activate
active actor adapt adapter adaption adaptive add addition additive adopt adoption advance advice
advise affect after again age agent aid aim air align all allocate allow alone along alpha already
alter alteration alternate alternation alternative amazon among analysis analyst analytics angel
angle annotation ansible answer apache apart app appeal appear append appendix apple application
apply appoint approve apps april arc arch archive area argument arm around array arrow art ask
aspect assemble assembler assembly assent assert assess asset assign assist associate assorted
assume assure atom attach attack attempt attend attribute audio audit august aurora auth author
authority authorize auto automate automatic automatically average avoid await award aware axis azure
back backed backend backing backspace backtrace backup bad badge bag balance ball ban band bank
banner bar bare barrel barrier barriers base based basic basis bat batch bath bay beam bean bear
beard beat become bed bee been beep beer began begin being bell below belt bench bend best bet
better bias bid big bill bin binary bind bird birth bit bitbucket bite black blame blank bleed blend
blink block blog blood blow blue board boat body bold bolt bond bonus book boot border bore born
bottle bottom bounce bound bowl box boy brace braces brackets branch brand bread break breath brick
bridge brief bright bring broad broke broker brown browse bucket buckets budget buffer bug build
builder built bulk bunch bundle burn burst bus busy but button buy buyer cab cable cache caddy call
callable caller came camel camera camp can cancel candidate candy cap capable capital caption
capture car card care careful caret carrier cart case cash cast casual cat catch causal cause cell
center central certain certificate chain chair chance change channel chapter char character charge
charset chart chat cheap check checked checker chest chief child chip choice choke choose chose
chrome chunk cipher circle city claim clarification clarify clarity clash class classic
classification classify claude clause clean cleaner cleanly clear clearer click client clip clock
clone close closed closer closet closures cloud club clue cluster clutter coach coast coat cod code
codebase codec coded codename coder codex coherent coin cold collapse collation collect collection
collector collision colon colony color colour column comb combat combination combine come comma
command comment commerce commit common communication commuter compact companion company comparable
compare comparison compatibility compatible compete competent competition compilation compile
compiled compiler complains complaint complement complete completed completion complex compliance
compliant complicate compliment component compose composer composition compound compress compression
compute computer concat concept concern conclusion concrete condensed condition conditional confirm
conflict conform confuse confusion connect connected connection connector consent consider consist
constant constantly constrain constraint construct consulted consume consumer contact contain
container content contest context contiguous continue continuous contour contract contrast
contribute control convention conversation conversational conversion convert convey convoy cook
cookie cool cope copied copper copy core corn corner corps correct corrected correction corrupt cost
couch count counter country county couple course court cover covered cow cpython crack craft crash
crate crawl cream create creation creator creature credit crew crime crop cross crowd crown cruise
cry crypt crypto cube cup cure curl currency current curry curse cursor curve custom customer cut
cute cycle cython daemon dagger daily dairy dance danger dark dash data database dataset date dawn
day dead deadline deadlock deal dealer dear death debate debit debt debug decay december decent
decide decision deck declaration declare decline decode decoded decoder decorate decoration decrease
decrement decrypt decryption dedicated deed deep deer default defeat defect defective defend
defensive defer define definite degree delay delegate delete deleted deletion deliver delta demand
demo denial dense deny depend dependency depicted deploy deployed deposit depth derivation derive
descending descent describe description descriptor desert deserve design designated designation
desire desk dessert destination destroy detach detail detect detected detection detector determine
detriment develop deviation device dialog diary dice dictionary diet differ difference different
digit dimension direct direction directive directory dirt dirty disable disabled discount discover
discovery discuss disk dispatch display dispose distance distinct distribute district dive diverse
diversion divide division django dock docker dockers docs doctor document does doesn dog dogs doing
doll domain done door dose dot double down downgraded download draft drag drain draw drawn dream
dress drift drill drink drive driver drop drove drum dry dual duck dumb dump duplicate during dust
duty dying each ear earliest early earn ease east easy eat edge edit edited edition editor effect
efficient effort egg eight eighth eighty eject elect election electron element eleven elimination
email embed emit empire employ employee employer empty enable enabled enclosed encode encoder
encodings encounter encrypt encryption end endless endpoint enforce engage engine enhance enjoy
enough ensure enter entire entirety entity entrance entry equal era erase error escape evaluation
even evening event ever every evil evolution exact exam example exceed except exception excerpt
excess excessive exchange exclamation exclude exclusion exclusive execute executed execution
executor exercise exist existed existent existing exit expand expansion expect expected expense
expensive expert expiration expire explained explanation explicit exploit exploration explore
explorer export exported expose exposed express expression extend extension extensive extent
external extra extract extreme eye face facet facing fact factor factory fade fail failed fair fairy
faith fake fall false fame family fan fancy far farm fashion fast fat father fault favor fear feat
feature february fee feed feel feet fell felt fence fern fetch few fiber fiction field fieldname
fifteen fifth fifty fig fight figure file filed filename filing fill filled filler filling film
filter fin final find finder fine finer finger finish fire firm first fish five fix fixed fixture
flag flake flame flash flask flat flavor flaw fleet flesh flex flight flip float flood floor flow
flower fluid flush fly focus fog fold folder folks follow font food fool foot force forced forest
forge forget fork form formal formally format formed former formerly formula fort forth forty forum
forward found four fourteen fourth fox frame framework fraud free freeze fresh friday friend front
frost frozen fruit fuel full fun function functional fund fur further future gain game gap gas gate
gather gauge gave gear gem gemini gemma general generate generated generation generative generator
get ghost gift girl gitea github gitlab give given glass global glue goal goat goes gold golden good
grab grace grade grafana grain grand grant grape graph graphic graphite graphql grass gray great
green greet grey grid grip ground group grow growth guard guess guest guide gun gym gzip hair half
hall halt hand handle handled handler handy hang happen happy harbor hard hardening hardware harm
hash hashable hasn hat hate have head header headless heal health heap hear heard heart heat heavy
height held hell helm help helper hen herb here hero hidden hide high hike hill hint hire hit hits
hold holder hole holiday home honour hood hook hop hope horn horse hose host hosted hostname hot
hotel hour house hover http https httpx hub huge hull human hundred hung hunt hurt hypertension
hypotension ice icon iconv idea ideal ident identified identifier identify identity idle ignore
illumination illusion image imagine imap impact implement implicit import imported importer impose
improper improve improved inactive incantation incident include inclusion inclusive income increase
increment indefinitely indent indentation index indicate indication indicator indirect inefficient
infer inference inferior infinite infinitely influence inform information ingest inherent inherit
initial initialization initialize initiative inject injection ink inline inner input insert
insertion inside inspect inspection install instance instant instantly instead instruct insufficient
insure integer integral integrate integration integrity intend intensity intent intention inter
interact interaction interactive intercept intercepts interest interface interfere interim interior
internal international internet interpolate interpret interrogate interrupt intersection interval
intervening intervention intranet intro invalid invent invention inventory inverse inversion invert
invest invite invocation invoice invoke involve iron island issue issued issuer item iterate
iteration iterator jam january jar jason java javac jenkins jest jet job join joint journal journey
joy json judge jug july jump june just kafka kart keen keep kept kernel key keyboard keyword
keywords kibana kick kid kill kind kinda king kiss kit knife know kotlin lab label labor lack lake
lambda lamp land lane lap large laser last late later latest latter laugh launch law lay layer
layout lazy lead leader leaf leak lean learn lease least leather leave left leg legal lemon lend
length lens less lesson let letter level lever liable libel liberal license lid lie lied lies life
lift light like limb lime limit limitation line linear linen liner link linked linker lint linter
linus linux lion lip list listen lit literal litigation little live liver llama llava load loader
loan local locale localhost localization locate location lock locked locker lockfile lodge log
logged logger logic logically login logo logon logout logs lone long look loop loose lord lore lose
loss lost lot lots loud love low lower luck lunch mac macro made mail main mainline maintain make
maker male mall manage manager mangling manual many map maple march margin marginal marine mark
marked marker market marriage mars mask mass master mat match mate material math matter maximal
maximize maximum mayor meal mean meant measure meat media median medium meet meeting melt member
memory mention menu mercy mere merge merger merit mesh mess message metal meter method metric micro
middle might migrate migration mild mile milk mill million mind mine mini minimal minimize minimum
minor mint minus minute miracle mirror miss missing mission mist mistake mistral misused mix mixed
mob mobile mock mod modal mode model modem moderate modern modify module moment monday money monitor
monkey monster month mood moon moose mop moral more morning most mother motion motor mount mountain
mouse mouth move moved movement movie much mud mug multicast multipart multiple multiply muscle
music must mutable mutate mute mysql myth naive name named namespace nano nap narrow nation national
native nature navy near nearby nearly neat neck need negate negation negative nest net network
neural never new newer news next nginx nice nicer niche nick night nine nineteen ninety ninth nod
node noise noisy nonce none normal normalization north nose not notation note noted nothing notice
notify notion novel november novice null number nurse nut oak object observe observer obtain occur
ocean october odd offer office often oil old older ollama omit once one online only open opened
opener operate operation operator opinion optimal optimize option optional oral orange order organ
organize orient origin original other otter outer outline output outside over overflow overhead
overlap overlay overload overlooked override overwrite own owned owner pace pack package packed
packer packet pad padlock page pager paid pail pain paint pair palace pale palette palm pan pane
panel panic paper para parallel param parent parity park parse parsed parser part partial particle
partition partly partner party pass passed passion passive past pasta paste patch patent path
patience patient patrol pattern pause pay payload payment peace peak pear pedantic peel peer pen
pending people percent perfect perform perhaps period permanent permission permit persist person
personal personnel pertinent pet phase phone photo phrase physical physics piano pick picker picky
picture pie piece pig pill pilot pin pine pink pinning pip pipe pit pitch place plain plan plane
planet planning plant plastic plate play player pleasure plot plug plugin plus pocket pod podman
poem poet point pointed pointer poison pole police policy poll polling pond pool poor pop pope port
portal porter portion portrait pose position positional positive possible post poster postfix
postgres pot pound pour power practical practice prayer preceded precedence precise precision
predicable predict predictable prediction preface prefer preference prefix prefixes preparation
prepare prepend prepends prescribe present presentation preservation preserve preset press pressure
presume pretend prev prevent preview price pride primality primary prime primer prince principal
principle print printed printer prior prism prison priv private prize probe problem procedure
proceed process processed processor produce producer product production profession profile profiler
profit program progress project projection prometheus promise promote promotional prompt proof
propagate propagation proper property proportional proposal propose proscribe prose protect
protected protection protein protest protocol prototype proud prove provide provided provider
provision proxy prune pub public pull pulp pulse pump punch pure purge purpose purse push put python
quad qualifier qualify quality quantifier quantify quantity query quest question queue quick quiet
quit quite quota quote qwen rabbit race rack radio rage rail rails rain raise ram ramp ran random
range rank rap rapid rare rat rate rather ratio rational raw ray reach reachable react reaction
reactor read readability readable reader reading readonly ready real realize reallocate really realm
rear reason rebase reboot rebuild recall receipt receive receiver recent recipe recipient record
recorded recorder recover recovery recruit recurse red redact redis redo reduce reduction redundant
refer reference refine reflect refname reform refreshed refund refuse regard regex region register
registry regression regular regulation reject rejection relate related relation relative relax relay
release released relevant reliability reliable relief reload relocate relocation rely remain
remainder remind reminder remote removal remove rename renaming render renew rent reordering repair
repeat repeatedly repetition replace replay replica replicate reply repo report reporter repose
reputation request require rescue research reserve reset reside resident resign resist resize
resolve resolved resolver resort resource respect respond response rest restart restore restrict
result resume resync retail retain retire retreat retrieve retry return reusable reuse reveal
revenue reverse revert review revise revocation revolve reward reword rework rib rice rich rid ride
rig right rim ring rip rise risk rival river road roar rob robe robot rock rod role roll roller roof
room root rope rose rotate rough round route router routine row royal rsync rub ruby ruff rug rule
ruler run runtime rush rust sad safe safer safety sail sake salad sale salt salutation same sample
sand sane sat saturation saturday sauce save saved saver saw saying scale scan scanner scare scatter
scene schedule schema scheme school science scope score scout scrap scrape scream screen script
scroll sea seal search season seat second secret section sector secure security see seed seek seem
segment select selected selection selector self sell seller send sender sense sent sentence separate
september sequence serial serialization series serious servant serve served server service session
set setting settle setup seven seventeen seventh seventy several severe severity sew sftp shade
shadow shake shallow shame shape share shared shark sharp sheet shelf shell shelter shift ship shirt
shock shoe shoot shop shore short shot should shoulder show shower shown shrink shrunk shut sibling
side sight sign signal signed signing silence silent silver similar simple simply simulation since
sing single singular sinh sink sit site situation six sixteen sixth sixty size skill skin skip sky
slab slack slash sleep slice slide slim slip slot slow small smart smash smell smile smoke smooth
smtp snack snake snap snmp snow soap sob social sock socket soft software soil solar sold sole solid
solution solve some song sort soul sound soup sour source south space spam span spare spark sparse
spawn speak special species specific specify speech speed spell spend spent spike spin spirit splice
split sponsor spoof spool sport spot spray spread spring sprint sqlite square stab stable stack
staff stage staged staging stair stake stale stall stamp stand standard standing star stare start
started starting starve stash state stated statement static station stationary stationery statistic
status stay steady steal steam steel steep stem step stick still sting stir stock stolen stone stop
storage store stored storm story straight strain strange strap stray stream streamer street strength
stress stretch strict strike string strip stripe stroke strong stronger struct structure struggle
stub stuck student studio study stuff style subject submit subnet subset substitution subtract
subtree suburb succeed success such sudden suffix sugar suggest suit suite sum summary summer sun
sunday super supply support suppose surface surge survey suspect suspend swap sweat sweep sweet
swift swim swing switch symbol symptom sync synthetic system tab table tablet tack tag tail take
taken taker tale talk tall tan tank tap tape tar target task taste tauri tax tea team tear tech teen
teeth tell tempfile template temple tempo temporary ten tend tense tensor tent tenth term terminal
terminate terraform test tested tester text texture than thank that theft their them theme then
theory there these they thick thin thing think third thirteen thirty this thorough those though
thought thousand thread threat three threw throat through throughout throughput throw thrown thumb
thursday thus tick ticket tide tidy tie tied tier tight tile till time timed timeline timeout timer
timezone tin tiny tip tire title titlepage toast today todo toe toggle token told tolerate toll toml
ton tone took tool top topic torch total touch tough tour tower town toy trace tracer track tracker
traction trade traditional traffic trail trailer train trainee trainer training trait transaction
transcript transfer transform transit transition transitional translate translation translator
transmit transparent transport trap trash travel traverse tray treat treatment tree trend trial
triangle tribe trick tried tries trigger trim trip triple troop truck true truly trunk trust truth
try tub tube tuesday tug tune tunnel turn turned tutor twelfth twelve twenty twice twist two type
typed typo ugly ultimate unable unaligned unarmed unblock undefine under underline understand
unicast uniform union unique unit unite united unity universe unix unless unlinked unload unlock
unmapping unmount unpacked unreachable unreadable unreliable unset unsigned unstable untested untied
until untracked untrusted unusable unused unwind unwrapping update upgrade upload upper upset uptime
urban usable usage use used useful user username uses usual valid validate validation validator
valley valuable value valve van variable variance variant variation variety vary vault vector vendor
verb verbose verify version versus very vet vice video view viewer villa village vine virtual
virtually virtue virus visa vision visit visitor visual visually vital vite vitest vocal voice void
volume vote wage wait waiter wake walk wall want war ware warm warn warning wash wasn waste watch
water wave wax way weak wealth wear weather web wednesday week weekend weigh weight welcome well
went were west wet what whatever wheat wheel when whenever where wherever whether which while white
whole whose wide widget width wife wild will win wince wind window wine wing winner winter wipe wire
wise wish wit with within without woman women wonder wood wool word work worked worker workflow
workshop workspace world worm worry worse worst worth would wound wrap wrapper writable write writer
written wrong wrote yard year yellow yes yield young zero zip zone zoom
""")


def has_content(words: Iterable[str]) -> bool:
    """Say whether one of the words says something: three letters and more, and no filler."""
    return any(
        word not in _FILLERS
        and (sum(map(str.isalpha, word)) >= _CONTENT_MIN or (len(word) > 1 and not word.isascii()))
        for word in words
    )


def is_negation(word: str) -> bool:
    """Say whether a word turns round what follows it."""
    return word in _NEGATIONS


def is_filler(word: str) -> bool:
    """Say whether a word says nothing by itself."""
    return len(word) < _CONTENT_MIN or word in _FILLERS


def stands_for(word: str, other: str, *, alone: bool, firm: bool) -> bool:
    """Say whether a word of a reference may stand for one of a name.

    `alone`: the reference has no other word. `firm`: some name has the word as typed.
    """
    if word == other:
        return True
    if _UNSPACED.fullmatch(word) and len(word) > 1:
        return _is_part(word, other)
    if not (word + other).isalpha():  # numbers and versions are the same, or others
        return False
    if _is_inflected(word, other) or _is_inflected(other, word):
        return not firm or other.startswith(word)
    if firm or _is_real(word):
        return False
    return _begins(word, other) or _is_slip(word, other, alone=alone)


def _is_part(word: str, other: str) -> bool:
    """Without spaces, a word is a part of the other; not behind a sign that turns it round."""
    at = other.find(word)
    return at == 0 or (at > 0 and other[at - 1] not in _TURNING_SIGNS)


def _is_inflected(word: str, other: str) -> bool:
    """Say whether the other is this word with a common ending."""
    if len(word) < _STEM_MIN or word in _OTHER_THINGS or not other.startswith(word):
        return False
    rest = other[len(word) :]
    if rest in {"s", "es"}:
        return word.endswith(_HISSES) == (rest == "es")
    if rest in {"ed", "ing"}:
        return not _SHORT.fullmatch(word)
    return (rest == "d" and word[-1] == "e") or (rest[0] == word[-1] and rest[1:] in {"ed", "ing"})


def _is_real(word: str) -> bool:
    """Say whether a word is well known, in whatever form."""
    if word in _REAL:
        return True
    for ending in ("s", "d", "es", "ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and (stem in _REAL or stem + "e" in _REAL or stem[:-1] in _REAL):
            return True
    return word.endswith(("ies", "ied")) and word[:-3] + "y" in _REAL


def _begins(word: str, other: str) -> bool:
    if len(word) < _BEGIN_MIN or not other.startswith(word):
        return False
    return not other[len(word) :].startswith(_TURNING_ENDS)


def _is_slip(word: str, other: str, *, alone: bool) -> bool:
    """Say whether a few letters missing, doubled, wrong or swapped make one word the other."""
    if len(word) < (_ALONE_MIN if alone else _SLIP_MIN) or word[0] != other[0]:
        return False
    two = len(word) >= _TWO_SLIPS_MIN and word[:2] == other[:2]
    return slips(word, other, 2 if two else 1) and not _are_opposed(word, other)


def slips(one: str, other: str, most: int) -> bool:
    """Say whether at most so many letters are missing, added, wrong or swapped."""
    if abs(len(one) - len(other)) > most:
        return False
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - see the head

    return OSA.distance(one, other, score_cutoff=most) <= most


def _are_opposed(one: str, other: str) -> bool:
    """Say whether two words differ in nothing but a prefix that turns them round."""
    for at in range(_STEM_MIN, min(len(one), len(other)) + 1):
        if one[-at:] != other[-at:]:
            return False
        before, instead = one[:-at], other[:-at]
        if (not before or before in _PREFIXES) and (not instead or instead in _PREFIXES):
            return True
    return False
