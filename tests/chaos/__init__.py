"""Members of a group are started, ended, killed and stopped while messages flow; the judge says what went wrong."""
