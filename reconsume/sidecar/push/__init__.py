"""Push: the sidecar consumes, and delivers each message to the app over HTTP."""
