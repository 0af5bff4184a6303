"""The brokers, proxies and processes that faults are done to."""
