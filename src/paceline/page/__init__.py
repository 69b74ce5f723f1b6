"""Pages that stand alone: figures as SVG and a little HTML, for all that report measurements."""
