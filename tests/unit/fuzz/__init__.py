"""Whatever comes in from outside: a value, or an error of ours that says what is wrong; never another one."""
