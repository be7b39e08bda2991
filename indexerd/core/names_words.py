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

import re
from collections.abc import Iterable

_BEGIN_MIN = 5  # letters that may stand for the word that they begin
_SLIP_MIN, _TWO_SLIPS_MIN, _ALONE_MIN = 4, 8, 6  # letters of a word that may be mistyped
_STEM_MIN = 3  # letters left of a word without its prefix or ending
_CONTENT_MIN = 3  # letters of a word that says something
_ENDINGS = frozenset(("s", "es", "ed", "d", "ing"))
_TURNING_ENDS = ("less", "free", "out", "off")  # "server" begins "serverless", and is not it
_OTHER_THINGS = frozenset("arm custom good mean new".split())  # "new" and "news"

# Scripts that put no space between words, and what turns the word behind it into its opposite.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_TURNING_SIGNS = frozenset("不未非无無反没沒")

_PREFIXES = frozenset(
    "a ante anti auto bi co counter de dis down em en ex extra fore hyper hypo il im in inner inter"
    " intra ir macro mega meta micro mid mini mis mono multi non off on out outer over para poly"
    " post pre pro pseudo quasi re self semi sub super tele trans tri ultra un under uni up".split()
)
_NEGATIONS = frozenset(
    "no not never none non without cannot dont doesnt isnt cant wont anti un t"
    " nicht kein keine ohne nie pas sans ne sin nunca".split()
)
_FILLERS = frozenset(
    "about after all also and any are because been before but can could does each for from get got"
    " had has have her here him his how into its just let like make may more most much not now of"
    " off on one only onto our out over per please she should some such than that the their them"
    " then there these they this those too upon use very was way were what when where which while"
    " who why will with would yes yet you your der die das den dem des ein eine und von mit für"
    " les des une pour avec los las del una para con".split()
)
_REAL = frozenset(
    "abort about above accent accept access accident account accurate action activate active actor"
    " adapt adapter adaption adopt adoption advance advice advise affect after again agent align"
    " allocate allow alone along alpha already alter alternate alternative among analysis analyst"
    " analytics angel angle annotation answer apart appeal appear append appendix apple application"
    " apply appoint approve april arch archive area argument around array arrow aspect assemble"
    " assembler assembly assert asset assign assist associate attach attack attempt attend audio"
    " audit august auth author authority authorize auto automate automatic average avoid await award"
    " aware back backed backend backing backup badge balance ball band bank banner bare barrel base"
    " based basic basis batch bath beam bean bear beard beat become been beep beer began begin being"
    " bell belt bench bend best better bias bill binary bind bird birth bite black blame blank"
    " bleed blend blink block blog blood blow blue board boat body bold bolt bond bonus book boot"
    " border bore born bottle bottom bound bounce bowl brace branch brand bread break breath brick"
    " bridge brief bright bring broad broke broker brown browse bucket budget buffer build builder"
    " built bulk bundle bunch burn burst busy button buyer cable cache call caller came camel camera"
    " camp cancel candidate capable capital caption capture card care careful carrier cart case cash"
    " cast catch cause causal casual cell center central certain chain chair chance change channel"
    " chapter char character charge chart chat cheap check checked checker chest chief child chip"
    " choice choose chose chrome chunk cipher circle city claim clash class classic clause clean"
    " cleaner clear clearer click client clip clock clone close closed closer closet cloud club clue"
    " cluster coach coast coat code coded codec coder coin cold collapse collation collect"
    " collection collector collision colon colony color column combat combine come comma command"
    " comment commerce commit common communication commuter compact company comparable compare"
    " comparison compatible compete compilation compile compiled compiler complaint complement"
    " complete completed completion complex compliance complicate compliment component compose"
    " composer compound compress compression compute computer concat concept concern concrete"
    " condition conditional confirm conflict conform confuse connect connected connection consent"
    " consider consist constant constrain constraint construct consume consumer contact contain"
    " container content contest context continue contour contract contrast control convention"
    " conversation conversion convert convey convoy cook cookie cool cope copied copper copy core"
    " corn corner corps correct corrected correction corrupt cost couch count counter country county"
    " couple course court cover covered crack craft crash crate crawl cream create creation creator"
    " creature credit crew crime crop cross crowd crown cruise crypt crypto curl currency current"
    " curry curse cursor curve custom customer cute cycle daily dairy dance dark dash data date dawn"
    " dead deadline deal dealer dear death debate debit debt debug decay december decent decide"
    " decision deck declare decline decode decoded decoder decorate decrease decrypt decryption deed"
    " deep deer default defeat defect defend defer define degree delay delegate delete deleted"
    " deletion deliver delta demand demo denial dense deny depend dependency deploy deployed deposit"
    " depth derive describe description descriptor desert deserve design desire desk dessert destroy"
    " detach detail detect detected detection detector determine develop device dialog diary dice"
    " dictionary diet differ difference different digit direct direction directive directory dirt"
    " dirty disable disabled discount discover discovery discuss disk display dispose distance"
    " distinct distribute district dive diverse diversion divide division dock doctor docs document"
    " does dogs doll domain done door dose double down download draft drag drain draw drawn dream"
    " dress drift drill drink drive driver drop drove drum dual duck dump duplicate during dust duty"
    " each early earn ease east easy edge edit edited edition editor effect efficient effort eight"
    " eighth eighty eject elect election electron element eleven email embed emit empire employ"
    " employee employer empty enable enabled encode encoder encounter encrypt encryption endless"
    " endpoint enforce engage engine enhance enjoy enough ensure enter entire entity entrance entry"
    " equal erase error escape evaluation even evening event ever every evil exact exam example"
    " exceed except exception excerpt excess exchange exclude exclusion exclusive execute executed"
    " execution executor exercise exist existed existing exit expand expansion expect expected"
    " expense expert expire explicit exploit explore explorer export exported expose exposed express"
    " expression extend extension extensive extent external extra extract extreme face facet facing"
    " fact factor factory fade fail failed fair fairy faith fake fall false fame family fancy farm"
    " fashion fast father fault favor fear feat feature february feed feel feet fell felt fence fern"
    " fetch fiber fiction field fifteen fifth fifty fight figure file filed filing fill filled"
    " filling film filter final find finder fine finer finger finish fire firm first fish five fixed"
    " flag flake flame flash flat flavor flaw fleet flesh flex flight flip float flood floor flow"
    " flower fluid flush focus fold folder follow font food fool foot force forced forest forge"
    " forget fork form formal format formed former formula fort forth forty forum forward found four"
    " fourteen fourth frame framework fraud free freeze fresh friday friend front frost frozen fruit"
    " fuel full function functional fund further future gain game gate gather gauge gave gear"
    " general generate generated generation generator gift girl give given glass global glue goal"
    " goat goes gold golden good grab grace grade grain grand grant grape graph graphic grass gray"
    " great green greet grid ground group grow growth guard guess guest guide hair half hall halt"
    " hand handle handled handler hang happen happy harbor hard hardware harm hash hate have head"
    " header heal health heap hear heard heart heat heavy height held hell help helper herb here hero"
    " hidden hide high hike hill hint hire hits hold holder hole holiday home hood hook hope horn"
    " horse hose host hosted hotel hour house hover huge hull human hundred hung hunt hurt"
    " hypertension hypotension icon idea ideal identified identifier identify identity idle ignore"
    " illusion image imagine impact implement implicit import imported importer impose improve"
    " improved inactive incident include inclusion inclusive income increase indent index indicate"
    " indicator indirect infer infinite inform information ingest inherit initial initialize inject"
    " injection inline inner input insert insertion inside inspect inspection install instance"
    " instant instead instruct insure integer integral integrate integration intend intent intention"
    " inter interact interaction interactive interest interface interfere interim interior internal"
    " international internet interpret interrupt intersection interval intranet intro invalid invent"
    " invention inventory inverse inversion invert invest invite invoice invoke involve iron island"
    " issue issued issuer item iterate iteration iterator january join joint journal journey judge"
    " july jump june just keen keep kept kernel kick kill kind king kiss knife know label labor lack"
    " lake lamp land lane large laser last late later latest latter laugh launch layer layout lazy"
    " lead leader leaf leak lean learn lease least leather leave left legal lemon lend length lens"
    " less lesson letter level lever liable libel license lied life lift light like limb lime limit"
    " line linear linen liner link linked linker lint lion list listen literal little live liver"
    " load loader loan local locale locate location lock locked locker lodge logged logger logic"
    " login logo logon logout logs lone long look loop loose lord lore lose loss lost lots loud love"
    " lower luck lunch macro made mail main maintain make maker male mall manage manager manual many"
    " maple march margin marine mark marked marker market marriage mars mask mass master match mate"
    " material math matter maximal maximize maximum mayor meal mean meant measure meat media median"
    " medium meet meeting melt member memory mention menu mercy mere merge merger merit mesh mess"
    " message metal meter method metric micro middle might migrate migration mild mile milk mill"
    " million mind mine mini minimal minimize minimum minor mint minus minute miracle mirror miss"
    " missing mission mist mistake mixed mobile mock mode model modem moderate modern modify module"
    " moment monday money monitor monster month mood moon moral more morning most mother motion motor"
    " mount mountain mouse mouth move moved movie much multiple multiply muscle music must mutable"
    " mutate mute myth naive name named namespace narrow nation national native nature navy near"
    " neat neck need negate negation negative nest network neural never newer news next nice night"
    " nine nineteen ninety ninth node noise none normal north nose note noted notice notify notion"
    " novel november null number nurse object observe observer obtain occur ocean october offer"
    " office often older omit once online only open opened opener operate operation operator opinion"
    " optimal optimize option optional oral orange order organ organize orient origin original other"
    " otter outer outline output outside over overflow overhead overlap overlay overload override"
    " overwrite owned owner pace pack package packed packer packet page pager paid pain paint pair"
    " palace pale palette palm panel panic paper para parallel parent park parse parsed parser part"
    " partial particle partition partner party pass passed passion passive past paste pasta patch"
    " patent path patience patient patrol pattern pause payload payment peace peak peer pending"
    " people percent perfect perform perhaps period permission permit persist person personal"
    " personnel phase phone photo phrase physical physics piano pick picker picture piece pill pilot"
    " pine pink pipe pitch place plain plan plane planet plant plastic plate play player pleasure"
    " plot plug plugin plus pocket poem poet point pointed pointer poison pole police policy poll"
    " polling pond pool poor pope port portal porter portion portrait pose position positional"
    " positive possible post poster pound pour power practical practice prayer precise precision"
    " predict preface prefer prefix prepare prescribe present preserve preset press pressure presume"
    " prevent preview price pride primary prime primer prince principal principle print printed"
    " printer prior prism prison private prize probe problem procedure proceed process processed"
    " processor produce producer product production profession profile profiler profit program"
    " progress project promise promote prompt proof propagate proper property proposal propose"
    " proscribe prose protect protected protection protein protest protocol prototype proud prove"
    " provide provided provider provision proxy prune public pull pulp pulse pump punch pure purge"
    " purpose purse push quantify quantity quality qualify query quest question queue quick quiet"
    " quit quite quota quote race rack radio rage rail rain raise ramp random range rank rapid rare"
    " rate rather ratio rational reach react reaction reactor read reader reading ready real realize"
    " really rear reason rebase rebuild recall receipt receive receiver recent recipe record recorded"
    " recorder recover recovery recruit recurse redact reduce reduction redundant refer reference"
    " refine reflect reform refund refuse regard regex region register registry regression regular"
    " reject relate related relation relative relax relay release released relevant reliable relief"
    " reload rely remain remind remote removal remove render renew rent repair repeat replace replay"
    " replica replicate reply report reporter repose request require rescue research reserve reset"
    " reside resign resist resize resolve resolved resolver resort resource respect respond response"
    " rest restart restore restrict result resume retail retain retire retreat retrieve retry return"
    " reuse reveal revenue reverse revert review revise revolve reward rice rich ride right ring"
    " rise risk rival river road roar robe robot rock role roll roller roof room root rope rose"
    " rotate rough round route router routine royal rule ruler rush rust safe safer safety sail sake"
    " salad sale salt same sample sand sane saturday sauce save saved saver scale scan scanner scare"
    " scatter scene schedule schema scheme school science scope score scout scrap scrape scream"
    " screen script scroll seal search season seat second secret section sector secure security seed"
    " seek seem segment select selected selection selector self sell seller send sender sense sent"
    " sentence separate september sequence serial series serious servant serve served server service"
    " session setting settle setup seven seventeen seventh seventy several severe severity shade"
    " shadow shake shallow shame shape share shared sharp sheet shelf shell shelter shift ship shirt"
    " shock shoe shoot shop shore short shot should shoulder show shower shut side sight sign signal"
    " signed signing silence silent silver similar simple simply since sing single sink site sixteen"
    " sixth sixty size skill skin skip sleep slice slide slim slip slot slow small smart smell smile"
    " smoke smooth snack snake snap snow soap social sock socket soft software soil solar sold sole"
    " solid solution solve some song sort soul sound soup sour source south space spam span spare"
    " spark sparse spawn speak special species specific specify speech speed spell spend spent spike"
    " spin spirit splice split sponsor sport spot spray spread spring sprint square stable stack"
    " staff stage staged staging stair stake stale stall stamp stand standard standing star stare"
    " start started starting starve stash state stated statement static station stationary stationery"
    " statistic status stay steady steal steam steel steep stem step stick still sting stir stock"
    " stone stop storage store stored storm story straight strain strange strap stream street"
    " strength stress stretch strict strike string strip stripe stroke strong struct structure"
    " struggle student studio study stuff style subject submit subset suburb succeed success such"
    " sudden suffix sugar suggest suit suite summary summer sunday super supply support suppose"
    " surface surge survey suspect suspend swap sweat sweep sweet swift swim swing switch symbol"
    " symptom sync system table tablet tack tail take taken taker tale talk tall tank tape target"
    " task taste team tear tech teen teeth tell template temple tempo temporary tend tense tensor"
    " tent tenth term terminal terminate test tested tester text texture than thank that theft their"
    " them theme then theory there these they thick thin thing think third thirteen thirty this"
    " thorough those though thought thousand thread threat three threw throat through throughout"
    " throughput throw thrown thumb thursday thus tick ticket tide tidy tied tier tight tile till"
    " time timed timeout timer tiny tire title toast today toggle token told tolerate toll tone tool"
    " topic torch total touch tough tour tower town trace tracer track tracker traction trade"
    " traffic trail trailer train trainee trainer training transaction transcript transfer transform"
    " transit transition translate translation translator transmit transparent transport trap trash"
    " travel traverse tray treat tree trend trial tribe trick tried trigger trim trip triple troop"
    " truck true truly trunk trust truth tube tuesday tune tunnel turn turned tutor twelfth twelve"
    " twenty twice twist type typed typo ugly ultimate unable unarmed under underline understand"
    " unicast uniform union unique unit unite united unity universe unless unload unlock unset unsigned"
    " until untied update upgrade upload upper upset urban usable usage used useful user uses usual"
    " valid validate validation validator valley value valve variable variance variant variation"
    " variety vary vault vector vendor verb verbose verify version versus very vice video view"
    " viewer villa village vine virtual virtue virus visa vision visit visitor visual vital vocal"
    " voice void volume vote wage wait waiter wake walk wall want ware warm warn warning wash waste"
    " watch water wave weak wealth wear weather wednesday week weekend weigh weight welcome well"
    " went were west what wheat wheel when where whether which while white whole whose wide widget"
    " width wife wild will wind window wine wing winner winter wipe wire wise wish with within"
    " without woman women wonder wood wool word work worked worker workflow world worm worry worse"
    " worst worth would wound wrap wrapper write writer written wrong wrote yard year yellow yield"
    " young zero zone zoom".split()
)


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
    if firm or word in _REAL:
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
    return rest in _ENDINGS or (rest[:1] == word[-1] and rest[1:] in {"ed", "ing"})


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
