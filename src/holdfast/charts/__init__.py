"""Charts as SVG: what a chart shows, its axes and its layers."""
