"""The command ``loopline``: one small file per subject, loaded when one of its commands is run."""
