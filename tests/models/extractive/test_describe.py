"""Names, descriptions and summaries by the built-in model."""

from dataclasses import replace
from itertools import product
from string import ascii_lowercase

import pytest

from indexerd.entries import Facts
from indexerd.meta.model import Metadata
from indexerd.models.extractive.describe import describe
from indexerd.protocol.limits import NAME_MAX

WORK = (
    ("user", "hey, can you look at why uploads time out on slow lines?"),
    ("assistant", "Let me look at the uploader first."),
    (
        "assistant",
        "The root cause is the fixed 5 s deadline in `upload.py`: slow lines never finish.",
    ),
    ("user", "ok, make the deadline grow with the size of the file, and add a test"),
    (
        "assistant",
        "Set the upload deadline to 5 s plus a second per megabyte. Added a test for slow lines.",
    ),
    ("user", "commit this"),
    ("assistant", "Fixed and pushed."),
)


def of(*messages: tuple[str, str], **known: object) -> Metadata:
    return describe(Facts(messages or WORK, **known))  # type: ignore[arg-type]  # any field


def section(found: Metadata, head: str) -> str:
    return found.summary.partition(f"## {head}\n")[2].partition("\n\n")[0]


TITLES = (
    ("plan", "# Upload deadlines by file size"),
    ("commit", "fix: let the upload deadline grow with the file"),
    ("commit", "docs: fix a typo in the changelog"),
    ("issue", "Uploads time out on slow lines"),
    ("pr", "feat(upload): scale the upload deadline with file size"),
)


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"title": "Slow uploads", "titles": TITLES}, "Slow uploads"),
        ({"titles": TITLES}, "Scale the upload deadline with file size"),
        ({"titles": TITLES[:3]}, "Upload deadlines by file size"),
        ({"titles": TITLES[1:3]}, "Fix: let the upload deadline grow with the file"),
        ({"titles": (("doc", "Upload deadlines by file size"),)}, "Upload deadlines by file size"),
    ],
)
def test_a_written_title_is_the_name(known: dict[str, object], name: str) -> None:
    """S0.19: the agent's, a pull request's, plan's, document's or commit's, else a request."""
    assert of(**known).name.partition(" + ")[0] == name


INIT = "Generate a file named AGENTS.md that serves as a contributor guide for this repository."
BMAD = "1. LOAD the FULL agent file from @bmad/agents/dev.md\n2. READ its entire contents"
GIT = "warning: adding embedded git repository of the importer"


@pytest.mark.parametrize("prompt", [INIT, BMAD, GIT])
def test_a_tools_text_names_no_session_with_other_work(prompt: str) -> None:
    """S0.19: what a client asks by `/init` or a framework by its files, and warnings."""
    said = ("user", prompt), ("assistant", "Done.")
    work = ("user", "sort the old prices by name"), ("assistant", "Done.")
    assert of(*said, *work).name.startswith("Sort the old prices")
    assert of(*said).name.casefold().startswith(prompt.removeprefix("1. ")[:30].casefold())


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (
            "fuck, the importer drops rows with umlauts again",
            "The importer drops rows with umlauts again",
        ),
        (
            "/srv/shop/worker can you review the retry plan https://tickets.example/17",
            "Worker can you review the retry plan",
        ),
        ("看一下/srv/shop/notes.md里的支付流程", "看一下notes.md里的支付流程"),
        (
            "OCRの結果画面に項目番号を表示してください。",
            "OCRの結果画面に項目番号を表示してください",
        ),
        (
            "Replace the hand-written date parsing in the report module with the standard function",
            "Replace the hand-written date parsing in the report module",
        ),
        ("1)the cache of the shop is never cleared", "The cache of the shop is never cleared"),
        (
            "I got this feedback:\n\nThe cache is never cleared\n\nsrc/a.py:12: warning = 1",
            "The cache is never cleared",
        ),
        (
            'Write-Host "Starting the server of the shop"\n\nThe shop never starts on port 80',
            "The shop never starts on port 80",
        ),
        (
            'slide.add_picture(join("charts", name), 1)\n\nThe charts of the slides are too small',
            "The charts of the slides are too small",
        ),
        (
            "this screen is too crowded..add a shortcut that skips to the second level",
            "Add a shortcut that skips to the second level",
        ),
        (
            "/team:review https://github.com/acme/shop/pull/88/files for the retry policy",
            "Review PR #88 for the retry policy",
        ),
        (
            "add retries to /srv/shop/worker/src/queue.py, and tests to tests/e2e/test_queue.py",
            "Add retries to queue.py, and tests to test_queue.py",
        ),
    ],
)
def test_a_request_becomes_a_title(asked: str, name: str) -> None:
    """S0.19: one clause of at most 72 characters, without outcries, padding and pasted output."""
    assert of(("user", asked), ("assistant", "Done.")).name == name


def test_words_of_the_session_follow_an_agents_title() -> None:
    """S0.19: an agent takes its title from the first request, which is not all of the session."""
    begun = [("user", "check the website certificate"), ("assistant", "It is valid.")]
    more = [("user", "make the delay of the mail worker grow"), ("assistant", DELAY)] * 2
    title = "Check website certificate"
    assert of(*begun, *more, title=title).name == f"{title} + {WORKER}"
    # Titles, the agent's summary and changed files have words of their own.
    told = f"{title} + worker, delay, mail, grows, retries, failure"
    commit = ("commit", "Count its retries")
    assert of(*begun, *more, title=title, titles=(commit,)).name == told
    assert of(*begun, *more, title=title, recap="It counts its retries.").name == told
    assert of(*begun, *more, title=title, files_modified=("src/retries.py",)).name == told
    written = "Let the mail worker wait longer after each failure, up to an hour"
    known: dict[str, object] = {"title": title, "titles": (("pr", written),)}
    known["cwd"] = "/srv/accounting-of-all"
    both = f"{title}; {written} + delay (accounting-of-all)"
    assert of(*begun, *begun, *more, **known).name == both
    most = "Make the delay of the mail worker grow + failure, retries, certificate, website"
    for small in (title, "Get started with the first task"):
        assert of(*begun, *more * 4, title=small).name == most


DELAY = "The mail worker now retries with a delay that grows after each failure. " * 9
WORKER = "worker, delay, mail, grows, failure, retries"
LONG = ("assistant", "The report now groups invoices by tenant and month. " * 20)
ASKED = ("user", "group the invoices of the report by tenant")
TENANTS = "Group the invoices of the report by tenant"
MONTH = f"{TENANTS} + month"


@pytest.mark.parametrize(
    ("first", "known", "name"),
    [
        ("restart the daemon of the mail server", {}, f"{MONTH}, restart, daemon, server, mail"),
        ("2026-01-01 10:00:00 ERROR boom\n" * 50, {}, MONTH),
        ("sudo systemctl restart the mail server of invoices", {}, MONTH),
        ("eva@mailhost shop % invoices serve --tenant report", {}, MONTH),
        ("hi", {"cwd": "/home/eva/dev/billing"}, f"{MONTH} (billing)"),
        ("hi", {"files_modified": ("/home/eva/code/billing/src/a.py",)}, f"{MONTH} (billing)"),
    ],
)
def test_a_name_covers_most_of_the_work(first: str, known: dict[str, object], name: str) -> None:
    """S0.19: no small request, log or part; a project stands behind a vague name."""
    short = ("assistant", "Done.")
    assert of(("user", first), short, ASKED, LONG, LONG, **known).name == name


WISHES = ("remove the border around the date", "round all corners", "and the week buttons?")
DONE = "The buttons and corners of the timeline are done."
CORNERS = "buttons, corners, timeline"
SMALL = [m for wish in WISHES for m in (("user", wish), ("assistant", DONE))]


@pytest.mark.parametrize(
    ("said", "known", "name"),
    [
        (SMALL, {}, f"{WISHES[0].capitalize()} + {CORNERS}"),
        (SMALL[:2], {}, WISHES[0].capitalize()),
        ([*SMALL, ASKED, LONG], {}, f"{TENANTS}; {WISHES[0].capitalize()} + {CORNERS}"),
        (8 * SMALL, {}, f"{WISHES[0].capitalize()} + {CORNERS}"),
        (
            8 * SMALL,
            {"cwd": "/srv/planner"},
            f"{WISHES[0].capitalize()} + {CORNERS} (planner)",
        ),
    ],
)
def test_a_name_of_a_part_tells_other_subjects(
    said: list[tuple[str, str]], known: dict[str, object], name: str
) -> None:
    """S0.19: a second one, and words that requests or several answers have, most frequent first."""
    assert of(*said, **known).name == name


def test_words_added_to_a_name_are_new() -> None:
    """S0.19: at most six, that the name, the project or another word lacks."""
    more = "The cache-key, the cache, the queue, quota, mail, disk, host and log of tenants"
    said = ("user", f"{more}, yeah, at e5cdabf, by clerk."), ("assistant", f"{more} at e5cdabf.")
    title = "Make the grouping of uploads faster"
    name = of(*said, *said, title=title, cwd="/srv/tenants").name
    assert name == f"{title} + cache-key, queue, quota, disk, host, mail (tenants)"
    assert of(*said, title=title, cwd="/srv/tenants").name == f"{title} (tenants)"


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/ana/shop", "Conversation in shop + cache, login, Form, page"),
        ("/home/ana", "Conversation in ana + cache, login, Form, page"),
        ("", "Conversation in no directory + cache, login, Form, page"),
    ],
)
def test_a_session_of_vague_requests_has_its_place_and_words(cwd: str, name: str) -> None:
    """S0.19: and no hash, in whatever form, nor a home directory as its subject."""
    page = "Fixed the form of the page in the sessions, at fa79a17b-dead-4bee, with much work."
    said = ("ok", page, "login", "The login works at E5CDABF.", "yes", "Form page done.", "cache")
    roles = ("user", "assistant") * 4
    made = of(*zip(roles, (*said, "The cache is at e5cdabf..9abcdef."), strict=True), cwd=cwd)
    assert made.name == name
    assert not [tag for tag in made.tags if "abcdef" in tag or "cdabf" in tag or "dead" in tag]


@pytest.mark.parametrize(
    ("asked", "name"),
    [("fix the parser", "Fix the parser (shop)"), ("commit this", "Conversation in shop")],
)
def test_a_short_wish_names_a_session(asked: str, name: str) -> None:
    """S0.19: if it has a subject."""
    assert of(("user", asked), ("assistant", "Done."), cwd="/home/ana/shop").name == name


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ("", f"{TENANTS} + {CORNERS}, date"),
        (" and each month", f"{TENANTS} and each month + buttons, corners"),
    ],
)
def test_a_name_keeps_room_for_the_project(wish: str, name: str) -> None:
    """S0.19: words or another subject are left out instead."""
    place = "planner-of-the-accounting-of-all-tenants"
    made = of(*SMALL, (ASKED[0], ASKED[1] + wish), LONG, cwd=f"/srv/{place}").name
    assert made == f"{name} ({place})"
    assert len(made) <= NAME_MAX


def test_a_title_in_another_language_tells_other_subjects() -> None:
    """S0.19: the agent's title stays in front, even if none of its words is in the session."""
    known: dict[str, object] = {"title": "Rechnungen drucken", "titles": TITLES[:1]}
    words = "slow, grow, megabyte, finish, root, Set"
    told = f"Rechnungen drucken; Upload deadlines by file size + {words}"
    assert of(*WORK, *WORK, **known).name == told


def test_the_description_says_what_came_of_it() -> None:
    """S0.19: results, a cause, and a commit; no announcement, no "fixed and pushed"."""
    found = of(titles=TITLES[1:2])
    assert "The root cause is the fixed 5 s deadline" in found.description
    assert "Fixed and pushed" not in found.description + found.summary
    assert "Let me look" not in found.summary
    assert "deadline to 5 s plus a second per megabyte" in section(found, "Outcome")
    assert "- Commit: Fix: let the upload deadline grow" in section(found, "Outcome")


@pytest.mark.parametrize(
    ("coming", "done"),
    [
        (
            "まず請求書の設定を確認します。",
            "請求書の番号を確認画面の左側に表示する機能を追加しました。",
        ),
        ("Сейчас проверю настройки счетов.", "Добавлены номера счетов на экран."),
        ("After that, I'll write the invoice docs.", "Added the invoice numbers to the screen."),
    ],
)
def test_the_description_announces_no_work(coming: str, done: str) -> None:
    """S0.19: of other languages, too."""
    asked = ("user", "please show invoice numbers on the screen")
    assert of(asked, ("assistant", f"{coming}\n\n{done}")).description == done


def test_the_description_tells_all_parts_of_the_work() -> None:
    """S0.19: not of the last request alone."""
    results = [
        "Added the currency of each price to the invoice table.",
        "Fixed the rounding of taxes in the monthly report.",
        "Added an index of the orders by their day of delivery.",
        "Replaced the login form with single sign-on.",
        "Moved the customer export to the background worker.",
    ]
    detail = "Renamed the worker's log file to export.log."
    said = [message for done in results for message in (("user", "go on"), ("assistant", done))]
    found = of(*said[:-1], ("assistant", f"{results[-1]} {detail}"))
    assert found.description == " ".join(results)


def test_what_was_asked_for_is_a_goal_and_no_outcome() -> None:
    """S0.19: a compaction's summary tells requests; the description adds what came of them."""
    asked = "Asked: keep the forecasts of each city for a day."
    done = "Added a cache to forecast.py with one row for each city."
    found = of(("user", "go on"), ("assistant", done), recap=asked)
    assert found.description == f"{asked} {done}"
    assert "keep the forecasts" in section(found, "Goal")
    assert "keep the forecasts" not in section(found, "Outcome")


@pytest.mark.parametrize(
    ("recap", "name"),
    [
        ("Goal: a cache for the forecasts. It is tested.", "A cache for the forecasts"),
        ("You're moving the cache to SQLite.", "Moving the cache to SQLite"),
        ("Asked: Move the cache to SQLite.", "Move the cache to SQLite"),
        ("Asked: The user is moving the cache to SQLite.", "Moving the cache to SQLite"),
        ("The user wanted me to move the cache to SQLite.", "Move the cache to SQLite"),
        ("The user's requests: Move the cache.", "Add a test for slow lines"),
        ("Move the cache to SQLite; close it.", "Add a test for slow lines"),
        ("Done.", "Add a test for slow lines"),
    ],
)
def test_what_the_agents_model_told_names_a_session(recap: str, name: str) -> None:
    asked = ("user", "add a test for slow lines")
    assert of(asked, ("assistant", "Added."), recap=recap).name == name


def test_a_document_is_an_outcome_and_no_description() -> None:
    found = of(titles=(("doc", "Limits of the mail server"),))
    assert "- Document: Limits of the mail server" in section(found, "Outcome")
    assert "Limits" not in found.name + found.description


def test_the_directory_of_a_specification_names_a_session() -> None:
    """Spec Kit asks for principles first, by an example that many take as it is."""
    said = "Create principles focused on code quality", "Start with the tasks of the cook timer"
    files = ("/srv/kitchen/specs/001-schedule-cook-timer/tasks.md",)
    messages = tuple(("user", text) for text in said)
    facts = Facts(messages, files_modified=files, cwd="/srv/kitchen")
    assert describe(facts).name == "Schedule cook timer (kitchen)"
    planned = replace(facts, titles=(("plan", "Schedule cook timer"),))
    assert "- Schedule cook timer" in section(describe(planned), "Goal")
    files = ("specs/001-login-form/spec.md", "specs/02-integration-plugins/a.lua")
    assert describe(replace(facts, files_modified=files)).name.startswith("Start with the tasks")


def test_a_bar_between_words_is_no_log() -> None:
    name = of(("user", "Replace Optional[X] by X | None in the package"), ("user", "Again")).name
    assert name == "Replace Optional[X] by X | None in the package"
    log = ("user", "poker-api-1 | authentication of the table denied")
    assert of(log, ("user", "Make the poker lobby quicker")).name == "Make the poker lobby quicker"


def test_a_long_session_has_more_results() -> None:
    """Sixteen, one more for each forty sentences of its answers, and at most thirty-two."""
    for sentences, most in ((60, 17), (400, 26), (3000, 32)):
        said = [
            f"The n{n}ab part of s{n}cd now keeps its own list of t{n}ef." for n in range(sentences)
        ]
        found = of(("user", "Split the parts"), ("assistant", "\n".join(said)))
        assert section(found, "Outcome").count("- ") == most


def test_many_commits_are_told_together() -> None:
    shown = ["Read the price list", "Cache the price list for a day", "Warn of old price lists"]
    titles = tuple(("commit", title) for title in (*shown, "Fix a typo in the changelog"))
    asked = ("user", "make the price list quick to read")
    found = of(asked, titles=titles, title="Speed of prices")
    assert found.description.startswith(f"4 commits, such as {'; '.join(shown)}")


def test_a_long_summary_has_fewer_results() -> None:
    """S0.19: the answer is valid, however long the session's sentences are."""
    words = [f"{''.join(letters)}shape" for letters in product(ascii_lowercase[:14], repeat=3)]
    said = [" ".join(words[n : n + 28]) for n in range(0, len(words), 28)]
    asked = [f"Let's use {text[:130]} instead." for text in said]
    done = [f"I chose {text}. Added the {' '.join(reversed(text.split()))}." for text in said]
    files = tuple(f"/srv/app/{text.replace(' ', '')[:140]}.py" for text in said)
    messages = (("user", "Make them"), ("assistant", "I will."))
    for pair in zip(asked, done, strict=True):
        messages += tuple(zip(("user", "assistant"), pair, strict=True))
    found = describe(Facts(messages, (), files))
    assert 7700 < len(found.summary) <= 8000
    assert section(found, "Files").startswith("- Changed: ")


def test_code_spans_keep_their_angles() -> None:
    done = "Changed `List<String>` to `Map<K, V>` in <b>all</b> services."
    found = of(("user", "Use maps for the names of services"), ("assistant", done))
    assert "`List<String>` to `Map<K, V>` in all services" in found.summary


def test_a_request_without_a_result_is_told_as_asked() -> None:
    """S0.19: a mark of a secret is no tag, and a swear word is not quoted."""
    found = of(("user", "delete the idiot staging database with [redacted:aws-key-id]"))
    assert found.description.startswith("Asked: delete the staging database")
    assert not {"idiot", "redacted", "aws-key-id"} & {*found.tags}


def test_words_of_grammar_are_no_tags() -> None:
    """S0.19: in Indonesian, for example."""
    asked = "Tolong buat laporan penjualan untuk kasir dengan grafik"
    done = "Laporan penjualan dengan grafik sudah dibuat untuk kasir."
    tags = {*of(("user", asked), ("assistant", done)).tags}
    assert {"laporan", "penjualan", "grafik"} <= tags
    assert not {"untuk", "dengan", "sudah"} & tags


def test_what_is_taken_back_is_no_decision() -> None:
    """S0.19: the session itself says that it was wrong."""
    said = (
        ("user", "Why do the nightly jobs run twice?"),
        (
            "assistant",
            "We decided to blame the cron daemon: the cron daemon fires nightly jobs twice.",
        ),
        ("user", "are you sure?"),
        (
            "assistant",
            "I was wrong about the cron daemon. We decided to lock each nightly job by name.",
        ),
    )
    decisions = section(of(*said), "Key Decisions")
    assert "lock each nightly job" in decisions
    assert "blame" not in decisions


@pytest.mark.parametrize(
    "coming",
    [
        "Next steps: run the migration of the invoices table.",
        "I have not yet run the integration tests against Postgres.",
        "You still need to rotate the webhook's secret.",
    ],
)
def test_what_the_last_answer_calls_open_comes_next(coming: str) -> None:
    """S0.19: no question of the agent; a last request without an answer is open, too."""
    done = f"Renamed the billing module in 14 files. {coming} Shall I still deploy the rest?"
    work = (("user", "rename the billing module"), ("assistant", done))
    assert section(of(*work), "Next Steps") == f"- {coming}"
    assert section(of(*work, ("user", "Migrate")), "Next Steps") == "- Migrate"
    assert section(of(*work, ("user", "yes please, continue")), "Next Steps") == ""


@pytest.mark.parametrize(
    "done",
    [
        "现在上传超时会随文件大小增长 慢速网络也能完成上传。",
        "이제 로그인 페이지가 쿠키 없이도 정상적으로 작동합니다.",
        "以下の原因で失敗していたため、クッキーの期限を 7 日に変更しました。",
    ],
)
def test_a_result_in_another_language_is_told(done: str) -> None:
    found = of(("user", "Fix the login page and the upload"), ("assistant", done))
    assert done in section(found, "Outcome")
    assert done in found.description


def test_tags_are_words_tickets_and_files() -> None:
    """S0.19: no numbers, and no name of a worktree."""
    found = of(files_modified=("/srv/.worktrees/7/src/upload.py",), cwd="/srv/.worktrees/7")
    assert {"deadline", "upload.py"} <= {*found.tags}
    assert not any(tag[0].isdigit() for tag in found.tags)
