"""Why something waits: a sentence for people and counted reasons for programs."""
