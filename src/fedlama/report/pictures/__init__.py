"""Charts and figures: what `page/static/charts.js` draws live, and matplotlib's still pictures of the same."""
