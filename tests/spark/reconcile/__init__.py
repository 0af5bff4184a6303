"""Reconcile: findings, the ledger, its command and its stream."""
