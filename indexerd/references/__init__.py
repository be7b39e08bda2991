"""References of one session to another: @@ in prompts, and questions to a session."""
