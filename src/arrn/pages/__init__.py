"""Reports for a browser: one file each, without a network, for wide and narrow screens, light and dark, and keyboards.

`element` escapes all text, `document` makes a page of elements, `line_chart`, `bar` and `ladder` draw, `thumbnail`
shows a sample. `evaluation_page` is the report of an evaluation; `arrn.demo` has its own, of the same parts.
"""

from arrn.pages.charts import Series, Value, bar, ladder, line_chart
from arrn.pages.evaluation_page import evaluation_page
from arrn.pages.markup import Content, Markup, choice, document, element, join, table, write_page
from arrn.pages.thumbnails import thumbnail
from arrn.pages.wording import accuracy_text, series_of, spell_count, spell_resolution

__all__ = [
    "Content",
    "Markup",
    "Series",
    "Value",
    "accuracy_text",
    "bar",
    "choice",
    "document",
    "element",
    "evaluation_page",
    "join",
    "ladder",
    "line_chart",
    "series_of",
    "spell_count",
    "spell_resolution",
    "table",
    "thumbnail",
    "write_page",
]
