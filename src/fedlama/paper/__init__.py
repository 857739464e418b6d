"""The paper as commands: its tables and figures, and the demo."""
