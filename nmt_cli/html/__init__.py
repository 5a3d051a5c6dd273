"""HTML pages that are complete in one file: base style, elements, and the code that composes them."""
