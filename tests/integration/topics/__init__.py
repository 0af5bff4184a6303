"""Topics of an installation: made, changed, deleted and met late."""
