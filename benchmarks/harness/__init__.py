"""The registry of measurements, the runner, and the forms of a result: JSON, Markdown, SVG."""
