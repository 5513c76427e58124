"""``python -m fedsplit`` is the command ``fedsplit``."""

from fedsplit.commands.app import main

main()
