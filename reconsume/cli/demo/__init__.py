"""`reconsume demo`: the whole loop on this machine, on real flights, counted from the topics."""
