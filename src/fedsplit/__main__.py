"""``python -m fedsplit`` is the command ``fedsplit``."""

from fedsplit.cli import main

main()
