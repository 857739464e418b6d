"""What runs showed: a sentence, a table, and a page with pictures."""

from fedlama.report.numbers.comparison import RunComparison, compare
from fedlama.report.numbers.groups import ComparisonGroup, compare_groups
from fedlama.report.page.draw import draw_report
from fedlama.report.tables.settings import markdown_table, terminal_table
from fedlama.report.words.conclusion import verdict, verdict_sentences

__all__ = [
    "ComparisonGroup",
    "RunComparison",
    "compare",
    "compare_groups",
    "draw_report",
    "markdown_table",
    "terminal_table",
    "verdict",
    "verdict_sentences",
]
