"""The kit of pages that are complete in one file: base style, elements, and what puts them together."""
