"""Answers that go on for as long as there is news: event streams, output being written, the link of a client."""
