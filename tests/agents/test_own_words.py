"""What a person typed of a prompt that another program filled in."""

import pytest

from indexerd.agents.json_lines import own_words

COMMAND = "## User Input\n\n```text\n{}\n```\n\nYou **MUST** consider it.\n"
HEAD = "---\ndescription: Create the constitution\nhandoffs: none\n---\n\n"
OLDER = "User input:\n\n{}\n\nThe text the user typed is the description.\n"
SEEN = "Hello memory agent.\n\n<observed_from_primary_session>\n  <user_request>{}</user_request>\n"
SKILL = '<skill name="lsp-navigation" location="/s/SKILL.md">\n# LSP\n</skill>'


@pytest.mark.parametrize(
    ("prompt", "typed"),
    [
        (COMMAND.format("Add tags"), "Add tags"),
        (HEAD + COMMAND.format("Add tags"), "Add tags"),
        (HEAD + COMMAND.format("$ARGUMENTS"), "Command “Create the constitution”"),
        (COMMAND.format("$ARGUMENTS"), ""),
        (COMMAND.format("Add tags").replace("\n", "\r\n"), "Add tags"),
        ("\r\n" + COMMAND.format("").replace("\n", "\r\n"), ""),
        (HEAD + OLDER.format("Add tags"), "Add tags"),
        (HEAD + OLDER.format("$ARGUMENTS"), "Command “Create the constitution”"),
        ("<meta>\ndescription: Write the rules\n</meta>\n\n# Rules\n", "Command “Write the rules”"),
        ("---\ntitle: My notes\n---\n\nRead this", "---\ntitle: My notes\n---\n\nRead this"),
        (SEEN.format("Fix the login"), "Fix the login"),
        (f"{SKILL}\n\nFind the callers", "Find the callers"),
        (SKILL, "lsp-navigation"),
        ("See <skill> and ## User Input", "See <skill> and ## User Input"),
    ],
)
def test_only_what_a_person_typed_counts(prompt: str, typed: str) -> None:
    assert own_words(prompt) == typed
