"""The numbers as tables: for the terminal, as Markdown, CSV and LaTeX, and as rows for the page."""
