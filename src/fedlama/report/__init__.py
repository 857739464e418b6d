"""What runs showed: a sentence, a table, and a page with pictures."""

from fedlama.report.comparison import Comparison, compare
from fedlama.report.conclusion import verdict, verdict_sentences
from fedlama.report.page import draw_report
from fedlama.report.tables import markdown_table, terminal_table

__all__ = ["Comparison", "compare", "draw_report", "markdown_table", "terminal_table", "verdict", "verdict_sentences"]
