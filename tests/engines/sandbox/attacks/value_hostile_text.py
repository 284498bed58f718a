"""Returns and raises what looks like markup, a path or an escape sequence when it is shown."""

KIND = "call"


def add(a, b):
    raise ValueError("\x1b[2J\x1b]0;passed\x07[red]passed[/red]\r\nPASSED\n\0</script>{0!r}%s${HOME}")
