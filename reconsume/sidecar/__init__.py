"""The sidecar: retries for consumers in any language, over HTTP."""
